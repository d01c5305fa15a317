"""The traffic split as a frozen value: which version answers a unit.

Weighted rendezvous hashing (Thaler and Ravishankar's highest random weight, Efraimidis and Spirakis's exponential
keys): every arm draws an exponential from a hash of (experiment, arm, unit), the least one divided by its share wins,
so an arm wins in proportion to its share and a changed weight moves few units beyond what it must. A pure function of
its arguments: no state, no order of a dict, no process's own hash seed. Knows nothing of models, HTTP or stores.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Reason = Literal["split", "default", "no_unit"]


class Assignment(NamedTuple):
    """The version that answers a unit, why, and its share inside the coverage where the split drew it."""

    version: str
    reason: Reason
    propensity: float | None


@dataclass(frozen=True, slots=True)
class Split:
    """Arms and their positive weights (of any sum), the part of the units that takes part, and who answers the rest."""

    experiment: str
    weights: tuple[tuple[str, float], ...]
    coverage: float
    default: str
    _shares: dict[str, float] = field(init=False, repr=False, compare=False)
    _keys: tuple[tuple[str, float, bytes], ...] = field(init=False, repr=False, compare=False)
    _gate: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shares = shares_of(dict(self.weights))
        prefix = self.experiment.encode("utf-8", "surrogatepass") + b"\0"
        keys = tuple((arm, shares[arm], prefix + arm.encode("utf-8") + b"\0") for arm in sorted(shares))
        object.__setattr__(self, "weights", tuple(sorted(self.weights)))
        object.__setattr__(self, "_shares", shares)
        object.__setattr__(self, "_keys", keys)
        object.__setattr__(self, "_gate", prefix[:-1] + b"/gate\0")

    def share(self, version: str) -> float:
        """The version's part of the covered units; 0 for one without weight."""
        return self._shares.get(version, 0.0)

    def assign(self, unit: str | None) -> Assignment:
        """The version for a unit (canonical text, see `unit_text`); None or "" is drawn at random, afresh each time."""
        if not unit:
            return Assignment(self._draw(), "no_unit", None)
        text = unit.encode("utf-8", "surrogatepass")
        if not self._keys or (self.coverage < 1.0 and uniform(self._gate + text) >= self.coverage):
            return Assignment(self.default, "default", None)
        arm, share = self._arm(text)
        return Assignment(arm, "split", share)

    def _arm(self, unit: bytes) -> tuple[str, float]:
        if len(self._keys) == 1:
            return self._keys[0][0], 1.0
        # Sorted by name and compared strictly: a tie goes to the smaller name.
        winner, least = self._keys[0], math.inf
        for key in self._keys:
            score = -math.log(uniform(key[2] + unit)) / key[1]
            if score < least:
                winner, least = key, score
        return winner[0], winner[1]

    def _draw(self) -> str:
        if not self._keys or random.random() >= self.coverage:
            return self.default
        return random.choices([key[0] for key in self._keys], [key[1] for key in self._keys])[0]


def uniform(key: bytes) -> float:
    """A number in (0, 1) from the first 8 bytes of the key's SHA-256: never 0, so its logarithm is finite."""
    head = int.from_bytes(hashlib.sha256(key).digest()[:8], "big")
    return ((head >> 11) + 0.5) / 2**53


def unit_text(value: object) -> str | None:
    """The canonical text of a unit: 42 and "42" are one unit; None and "" are none. TypeError for any other kind."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise TypeError("a unit is a string or an integer")


def shares_of(weights: Mapping[str, float]) -> dict[str, float]:
    """weight / sum of each arm with weight, independent of their order. ValueError where that is no distribution."""
    for arm, weight in weights.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"the weight of {arm!r} is {weight}, not a finite number of at least 0")
    try:
        total = math.fsum(weights.values())
    except OverflowError:
        total = math.inf
    if not math.isfinite(total):
        raise ValueError("the weights' sum is beyond what a number can hold")
    shares = {arm: weight / total for arm, weight in weights.items() if weight > 0}
    for arm, share in shares.items():
        if share == 0:
            raise ValueError(f"the weight of {arm!r} is too small beside the sum of the weights")
    return shares


def moved_fraction(old: Split, new: Split) -> float:
    """The share of all units whose answering version differs between the two splits, in closed form.

    A unit stays at arm i of one experiment iff E_k >= E_i * max(w_k/w_i, w'_k/w'_i) for every k, and exponentials give
    that the probability 1 / sum_k max(w_k/w_i, w'_k/w'_i). The gate is one draw, so coverages nest. Another experiment
    draws everything anew, independent of before.
    """
    if old.experiment != new.experiment:
        before, after = _answers(old), _answers(new)
        return _clip(1.0 - math.fsum(part * after.get(version, 0.0) for version, part in before.items()))
    inside = _coverage(old), _coverage(new)
    return _clip(
        math.fsum(
            (
                min(inside) * (1.0 - _staying(old, new)),
                max(0.0, inside[0] - inside[1]) * (1.0 - old.share(new.default)),
                max(0.0, inside[1] - inside[0]) * (1.0 - new.share(old.default)),
                (1.0 - max(inside)) * (old.default != new.default),
            )
        )
    )


def _staying(old: Split, new: Split) -> float:
    before, after = old._shares, new._shares
    arms = before.keys() | after.keys()
    return math.fsum(
        1.0 / math.fsum(max(old.share(k) / before[i], new.share(k) / after[i]) for k in sorted(arms))
        for i in sorted(before.keys() & after.keys())
    )


def _coverage(split: Split) -> float:
    return split.coverage if split.weights else 0.0


def _answers(split: Split) -> dict[str, float]:
    covered = _coverage(split)
    answers = {arm: covered * share for arm, share in split._shares.items()}
    answers[split.default] = answers.get(split.default, 0.0) + 1.0 - covered
    return answers


def _clip(fraction: float) -> float:
    # Sums of shares miss 0 by an ulp; a change that moves nobody must say 0.
    return 0.0 if fraction < 1e-12 else min(1.0, fraction)
