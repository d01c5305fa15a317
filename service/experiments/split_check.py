"""Whether counts fall to the arms as the split says: sample ratio mismatch, and errors that fall to one arm too often.

Both are one Bayes factor, Dirichlet-multinomial against the multinomial of the split (Lindon and Malek, arXiv
2011.03567): 1 over it is a p-value that stays valid at every look. Shape letter: A arms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.experiments.evidence import Epoch
from service.experiments.table import distinct, has_traffic

Floats = npt.NDArray[np.float64]

# How sure the alternative is that the counts lie near the split: what finds gross breakage soonest (100 for units),
# and a threefold error rate in a small arm (10 for errors).
UNIT_STRENGTH = 100.0
ERROR_STRENGTH = 10.0
FIRST = 0.8
_lgamma = np.frompyfunc(math.lgamma, 1, 1)


def ln_bayes_factor(counts: npt.ArrayLike, shares: npt.ArrayLike, strength: float) -> Floats:
    """The logarithm of the evidence against `shares` (A,), positive and adding up to 1, of counts (..., A)."""
    found, expected = np.asarray(counts, np.float64), np.asarray(shares, np.float64)
    prior = strength * expected
    arms = _ln_gamma(prior + found) - _ln_gamma(prior) - found * np.log(expected)
    whole = _ln_gamma(np.asarray(strength)) - _ln_gamma(strength + found.sum(axis=-1))
    return np.asarray(whole + arms.sum(axis=-1), np.float64)


def _ln_gamma(values: Floats) -> Floats:
    return np.asarray(_lgamma(values), np.float64)


def p_of(ln_factor: float) -> float:
    """The p-value of a Bayes factor."""
    return math.exp(-max(ln_factor, 0.0))


def combined(ln_factors: Sequence[float]) -> float:
    """One logarithm of a Bayes factor for several epochs, in their order.

    The same units come back in the next epoch and are assigned by the same hash, so the factors are not independent
    and their product would count one chance imbalance many times. Their mean under weights fixed beforehand is valid
    whatever they depend on: 0.8 for the first epoch, 0.2 / (j (j - 1)) for epoch j, for as many as may come.
    """
    weights = [FIRST if j == 1 else (1.0 - FIRST) / (j * (j - 1)) for j in range(1, len(ln_factors) + 1)]
    # Epochs still to come hold a factor of 1.
    terms = [math.log(weight) + ln for weight, ln in zip(weights, ln_factors, strict=True)]
    rest = 1.0 - math.fsum(weights)
    top = max([0.0, *terms])
    return top + math.log(math.fsum(math.exp(term - top) for term in terms) + rest * math.exp(-top))


class UnitCheck(NamedTuple):
    """One epoch's split by its sampled units: `counts` by version, `ln_factor` None with fewer than two arms.

    `doubled` units are in more than one arm, `unweighted` names arms without weight that have traffic; both must be
    none. `enough` says that every arm could be expected to hold 8 units (the rule of GrowthBook).
    """

    counts: dict[str, int]
    ln_factor: float | None
    doubled: int
    unweighted: tuple[str, ...]
    enough: bool


def check_units(epoch: Epoch) -> UnitCheck:
    """Judge one epoch."""
    weighted = [arm for arm in epoch.arms if arm.share > 0]
    counts = {arm.version: len(arm.units) for arm in epoch.arms}
    doubled = sum(counts.values()) - distinct([arm.units for arm in epoch.arms])
    unweighted = tuple(arm.version for arm in epoch.arms if arm.share <= 0 and has_traffic(arm))
    units, shares = [counts[arm.version] for arm in weighted], [arm.share for arm in weighted]
    if (missing := 1.0 - math.fsum(shares)) > 1e-6:
        # An arm with weight that nobody has counted must not look like one that is not there.
        units, shares = [*units, 0], [*shares, missing]
    if len(units) < 2:
        return UnitCheck(counts, None, doubled, unweighted, False)
    whole = math.fsum(shares)
    ln_factor = float(ln_bayes_factor(units, [share / whole for share in shares], UNIT_STRENGTH))
    return UnitCheck(counts, ln_factor, doubled, unweighted, sum(units) * min(shares) >= 8)


class ErrorCheck(NamedTuple):
    """The errors of an arm beside those of the default: `p` that they split like the traffic, and whether the arm has
    more than its part. Only both together speak against the arm."""

    errors: int
    default_errors: int
    p: float
    high: bool


def check_errors(epochs: Iterable[Epoch], version: str, default: str) -> ErrorCheck:
    """Judge the errors of one version over the epochs in which both had weight; p is 1 where there were none."""
    ln_factors, errors, others, expected = [], 0, 0, 0.0
    for epoch in epochs:
        arms = {arm.version: arm for arm in epoch.arms if arm.share > 0}
        if version in arms and default in arms:
            arm, base = arms[version], arms[default]
            share = arm.share / (arm.share + base.share)
            counts = [base.errors, arm.errors]
            ln_factors.append(float(ln_bayes_factor(counts, [1.0 - share, share], ERROR_STRENGTH)))
            errors, others = errors + arm.errors, others + base.errors
            expected += share * sum(counts)
    return ErrorCheck(errors, others, p_of(combined(ln_factors)), errors > expected)
