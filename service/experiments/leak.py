"""Whether a version's training has seen the future: told from its shadow, before anybody is answered by it. Pure.

A feature that leaked makes a version better offline than it can be online. Three signs, each in words:
  - its AUC falls from offline to online further than that of the version that answers: online only shown items count,
    so every version's falls, and only the difference speaks;
  - it predicts far more or fewer clicks than there are, where the version that answers does not;
  - values are missing, or unknown, far more often than where it was evaluated: what leaked is not there when it serves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from service.experiments.paired import Paired

# How far the gap may exceed the other version's, and where calibration is right; to tune on a service's own data.
GAP = 0.02
CALIBRATED = (0.8, 1.25)
# Looked at again and again, so nothing is said within three standard errors.
ERRORS = 3.0
LEAST_CLICKS = 50
# Users and items that are new make values unknown; nothing but a cause makes them missing.
LEAST_ROWS = 100
MISSING = 0.05
UNKNOWN = 0.2
RATE_ERRORS = 4.0


class Offline(NamedTuple):
    """What a manifest says of its version: the AUC, and by feature the values a row that were missing or unknown."""

    auc: float | None = None
    missing: Mapping[str, float] = {}
    unknown: Mapping[str, float] = {}


class Looked(NamedTuple):
    """Rows of served requests that were looked at, and their values that were missing or unknown, by feature."""

    rows: int = 0
    missing: Mapping[str, int] = {}
    unknown: Mapping[str, int] = {}


def offline_of(manifest: Mapping[str, Any]) -> Offline:
    """From a manifest, of whatever age: what it does not say is not held against anybody."""
    metrics, values = manifest.get("metrics"), manifest.get("values")
    auc = None
    for part in ("test", "valid"):
        found = metrics.get(part) if isinstance(metrics, Mapping) else None
        if auc is None and isinstance(found, Mapping) and isinstance(found.get("auc"), float):
            auc = found["auc"]
    if not isinstance(values, Mapping) or not values.get("rows"):
        return Offline(auc)
    rates = {
        kind: {name: count / values["rows"] for name, count in values.get(kind, {}).items()}
        for kind in ("missing", "unknown")
    }
    return Offline(auc, rates["missing"], rates["unknown"])


def suspicion(candidate: Offline, incumbent: Offline, pair: Paired | None, looked: Looked) -> dict[str, Any]:
    """`state`: suspected with its `reasons`, none where enough was seen to say so, else collecting."""
    enough = pair is not None and LEAST_CLICKS <= pair.clicks <= pair.items - LEAST_CLICKS
    reasons = _rates(candidate, looked)
    if pair is not None and enough:
        reasons += [reason for reason in (_gap(candidate, incumbent, pair), _calibration(pair)) if reason]
    if reasons:
        return {"state": "suspected", "reasons": reasons}
    return {"state": "none" if enough else "collecting", "reasons": []}


def _gap(candidate: Offline, incumbent: Offline, pair: Paired) -> str | None:
    if candidate.auc is None or incumbent.auc is None:
        return None
    promised = candidate.auc - incumbent.auc
    if not promised - pair.auc_gain.bounds(ERRORS)[1] > GAP:
        return None
    return (
        f"its AUC is {candidate.auc:.3f} offline and {pair.shadow_auc:.3f} online, that of '{pair.version}' "
        f"{incumbent.auc:.3f} and {pair.auc:.3f}: it falls by {promised - pair.auc_gain.value:.3f} more"
    )


def _calibration(pair: Paired) -> str | None:
    (low, high), (least, most) = pair.shadow_calibration.bounds(ERRORS), CALIBRATED
    if not (high < least or low > most) or not least <= pair.calibration.value <= most:
        return None
    return (
        f"it predicts {pair.shadow_calibration.value:.2f} times the clicks that there are, "
        f"'{pair.version}' {pair.calibration.value:.2f} times"
    )


def _rates(candidate: Offline, looked: Looked) -> list[str]:
    if looked.rows < LEAST_ROWS:
        return []
    found = []
    for kind, slack, counts, rates in (
        ("missing", MISSING, looked.missing, candidate.missing),
        ("unknown", UNKNOWN, looked.unknown, candidate.unknown),
    ):
        for name, count in sorted(counts.items()):
            served, promised = count / looked.rows, rates.get(name)
            error = math.sqrt(max(served * (1 - min(served, 1.0)), 1 / looked.rows) / looked.rows)
            if promised is not None and served - RATE_ERRORS * error > promised + slack:
                found.append(f"{kind} values of '{name}': {served:.3f} a row served, {promised:.3f} a row offline")
    return found
