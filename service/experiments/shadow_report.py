"""What the report says of the shadow: how far it agrees with who answers, who predicts better, whether it leaked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from service.experiments import paired as pairing
from service.experiments.agreement import Sums, means
from service.experiments.evidence import Joined
from service.experiments.leak import Looked, Offline, offline_of, suspicion
from service.experiments.paired import Paired, paired
from service.state import Transaction
from service.state.shadows import Pair, Seen, read_sums, read_values

Json = dict[str, Any]


class Found(NamedTuple):
    """What the store has of a version that shadows, or did last; `fraction` None where none does now."""

    version: str
    fraction: float | None
    sums: list[tuple[Pair, Sums]]
    seen: Mapping[str, Seen]


def read_shadow(view: Transaction, experiment: str) -> Found | None:
    """Of an experiment's newest shadow; None where it never had one."""
    document, rows = view.document(), read_sums(view, experiment)
    shadow = document.shadow if document.experiment == experiment else None
    if shadow is None and not rows:
        return None
    version = rows[-1][0].shadow if shadow is None else shadow["version"]
    sums = [(pair, Sums(**row)) for pair, row in rows if pair.shadow == version]
    return Found(version, shadow and shadow["fraction"], sums, read_values(view, experiment, version))


def shadow_report(
    found: Found, default: str, joined: Sequence[Joined], manifests: Mapping[str, Mapping[str, Any]]
) -> Json:
    """The report's "shadow". `manifests` by version, as far as they are there."""
    version = found.version
    pairs = [pair for one in joined if one.shadow_version == version and (pair := paired(one)) is not None]
    beside = next((pair for pair in pairs if pair.version == default), pairs[0] if pairs else None)
    incumbent = default if beside is None else beside.version
    offline = {name: offline_of(manifests.get(name, {})) for name in (version, incumbent)}
    return {
        "version": version,
        "fraction": found.fraction,
        "compared": [_compared(name, sums, pairs) for name, sums in by_version(found.sums).items()],
        "leak": suspicion(offline[version], offline.get(incumbent, Offline()), beside, looked_at(found.seen)),
    }


def by_version(rows: Sequence[tuple[Pair, Sums]]) -> dict[str, Sums]:
    """The sums over epochs, by the version that answered: a comparison on the same rows may be pooled."""
    found: dict[str, Sums] = {}
    for pair, sums in rows:
        found[pair.version] = found.get(pair.version, Sums()).plus(sums)
    return found


def looked_at(seen: Mapping[str, Seen]) -> Looked:
    """The counts of all features; each was looked at in the same rows."""
    return Looked(
        max((one.rows for one in seen.values()), default=0),
        {name: one.missing for name, one in seen.items()},
        {name: one.unknown for name, one in seen.items()},
    )


def _compared(version: str, sums: Sums, pairs: Sequence[Paired]) -> Json:
    clicks = next((pairing.told(pair) for pair in pairs if pair.version == version), None)
    return {"version": version, **means(sums), "joined": clicks}
