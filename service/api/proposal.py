"""The bodies of the changes under /models: every fault named, nothing guessed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal

from service.changes import Proposal
from service.errors import MAX_FAULTS, NotJson
from service.feature_names import shorten
from service.names import RULE, is_experiment, is_version
from service.scoring.schema import nearest
from service.scoring.values import EncodeError, Fault
from service.state import Shadow
from service.traffic import shares_of

KEYS = ("weights", "coverage", "default", "shadow", "experiment", "comment")
SHADOW_KEYS = ("version", "fraction")
MAX_VERSIONS = 100
MAX_COMMENT = 1000


class BadBody(EncodeError):
    """A body of an admin call that says nothing that could be done; its faults say where and why."""


class Faults(list[Fault]):
    """The first faults of a body."""

    def add(self, loc: tuple[str | int, ...], msg: str, kind: str) -> None:
        if len(self) < MAX_FAULTS:
            self.append(Fault(loc, msg, kind))


def parse_proposal(body: object) -> Proposal:
    """The split that a decoded body proposes; BadBody lists its faults."""
    faults = Faults()
    given = object_of(body, KEYS, faults)
    proposal = Proposal(
        weights=_weights(given.get("weights"), faults) if "weights" in given else _absent(faults),
        coverage=_coverage(given["coverage"], faults) if "coverage" in given else None,
        default=_name("default", given, faults),
        shadow=_shadow(given["shadow"], faults) if "shadow" in given else "keep",
        experiment=_name("experiment", given, faults),
        comment=_comment(given.get("comment", ""), faults),
    )
    if faults:
        raise BadBody(faults)
    return proposal


def parse_rollback(body: object) -> int | None:
    """The epoch that a rollback names; None where it is to undo the current one."""
    faults = Faults()
    epoch = object_of(body, ("epoch",), faults).get("epoch")
    if epoch is not None and (isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 < epoch < 2**63):
        faults.add(("epoch",), "an epoch is a whole number above 0", "int_type")
    if faults:
        raise BadBody(faults)
    return epoch if isinstance(epoch, int) else None


def parse_revision(body: object) -> int:
    """The catalog revision that a switch names."""
    faults = Faults()
    given = object_of(body, ("revision",), faults)
    revision = given.get("revision")
    if "revision" not in given:
        faults.add(("revision",), "a revision is needed", "missing")
    elif isinstance(revision, bool) or not isinstance(revision, int) or revision < 0:
        faults.add(("revision",), "a revision is a whole number of at least 0", "int_type")
    if faults:
        raise BadBody(faults)
    assert isinstance(revision, int)  # as checked
    return revision


def read_body(body: bytes | bytearray) -> object:
    """JSON, an empty body as no fields; NaN and infinities are read as numbers, so that what holds them is refused
    by name. Raises NotJson."""
    try:
        found = json.loads(body.decode("utf-8")) if body else {}
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate could be stored, but never shown again
        return found
    except RecursionError:
        raise NotJson("the JSON is nested too deep") from None
    except ValueError as error:
        raise NotJson(f"the body is not JSON: {error}") from None


def parse_nothing(body: object) -> None:
    """Refuse any field: the call takes none, least of all an address to load from."""
    faults = Faults()
    object_of(body, (), faults)
    if faults:
        raise BadBody(faults)


def object_of(body: object, keys: tuple[str, ...], faults: Faults) -> Mapping[str, Any]:
    """The body as an object; a fault for each key that is none of `keys`. BadBody where it is no object."""
    if not isinstance(body, dict):
        raise BadBody([Fault((), "the body must be a JSON object", "dict_type")])
    for key in body:
        if key not in keys:
            shown = shorten(key)
            faults.add((shown,), f"no such field{nearest(shown, keys)}", "extra_forbidden")
    return body


def _absent(faults: Faults) -> dict[str, float]:
    faults.add(("weights",), "weights are needed", "missing")
    return {}


def _weights(value: object, faults: Faults) -> dict[str, float]:
    if not isinstance(value, dict):
        faults.add(("weights",), "weights are an object of version: number", "dict_type")
        return {}
    if len(value) > MAX_VERSIONS:
        faults.add(("weights",), f"at most {MAX_VERSIONS} versions", "too_long")
        return {}
    weights: dict[str, float] = {}
    before = len(faults)
    for version, weight in value.items():
        if not is_version(version):
            faults.add(("weights", shorten(version)), f"not a version's name: {RULE}", "version_name")
        elif (number := number_of(weight)) is None or number < 0:
            faults.add(("weights", version), "a weight is a finite number of at least 0", "weight")
        else:
            weights[version] = number
    if len(faults) == before:
        _check_sum(weights, faults)
    return weights


def _check_sum(weights: dict[str, float], faults: Faults) -> None:
    try:
        if not shares_of(weights):
            faults.add(("weights",), "no version has weight; at least one must", "no_weight")
    except ValueError as error:
        faults.add(("weights",), str(error), "weight_sum")


def _coverage(value: object, faults: Faults) -> float:
    number = number_of(value)
    if number is None or not 0 <= number <= 1:
        faults.add(("coverage",), "the coverage is a number from 0 to 1", "coverage")
        return 0.0
    return number


def _shadow(value: object, faults: Faults) -> Shadow | Literal["keep"] | None:
    if value is None:
        return None
    before = len(faults)
    if not isinstance(value, dict):
        faults.add(("shadow",), "a shadow is null, or an object of version and fraction", "dict_type")
        return "keep"
    for key in value:
        if key not in SHADOW_KEYS:
            shown = shorten(key)
            faults.add(("shadow", shown), f"no such field{nearest(shown, SHADOW_KEYS)}", "extra_forbidden")
    for key in SHADOW_KEYS:
        if key not in value:
            faults.add(("shadow", key), f"a shadow needs its {key}", "missing")
    version, fraction = value.get("version"), number_of(value.get("fraction"))
    if "version" in value and not is_version(version):
        faults.add(("shadow", "version"), f"not a version's name: {RULE}", "name")
    if "fraction" in value and (fraction is None or not 0 < fraction <= 1):
        faults.add(("shadow", "fraction"), "a fraction is a number above 0 and at most 1", "fraction")
    return "keep" if len(faults) > before else {"version": str(version), "fraction": fraction or 0.0}


def _name(key: str, given: Mapping[str, Any], faults: Faults) -> str | None:
    value = given.get(key)
    if key in given and not (is_version if key == "default" else is_experiment)(value):
        kind = "a version's name" if key == "default" else "an experiment's name"
        faults.add((key,), f"not {kind}: {RULE}", "name")
        return None
    return value


def _comment(value: object, faults: Faults) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAX_COMMENT:
        faults.add(("comment",), f"a comment is a text of at most {MAX_COMMENT} characters", "comment")
        return ""
    return value


def number_of(value: object) -> float | None:
    """The JSON number as a float; None for anything else, and for what no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
