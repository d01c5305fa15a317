"""Click rates of randomised units, and the lift of one over another, with variances that know that units repeat.

A unit sends many impressions, which are alike: what varies independently is the unit, or here the sub-bucket of units.
Shape letters: K sub-buckets, E epochs; `...` any axes before them, so that many experiments are judged in one call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.float64] | npt.NDArray[np.int64]


class Estimate(NamedTuple):
    """A value and the variance of its estimator, (...) each; NaN where there is nothing to estimate from."""

    value: Floats
    variance: Floats


def ratio(clicks: Numbers, exposures: Numbers) -> Estimate:
    """Sum of clicks by sum of exposures over the last axis, (..., K): the ratio metric of K independent units.

    Var R = [s_C^2 - 2 R s_CM + R^2 s_M^2] / (K mean(M)^2) (Deng, Knoblich and Lu, arXiv 1803.06336), which is the
    sample variance of the residuals C - R M, whose mean is 0.
    """
    return standardised(clicks[..., None, :], exposures[..., None, :], np.ones(1))


def standardised(clicks: Numbers, exposures: Numbers, weights: Numbers) -> Estimate:
    """The weighted mean over epochs of the rates within each; counts (..., E, K), weights (..., E), at least 0.

    Never pooled: where the split changed, pooled rates compare Friday's users with Saturday's (Simpson). An epoch
    without weight or exposures adds nothing. A unit keeps its sub-bucket in all epochs, so the residuals are added up
    over the epochs before they are squared: users who come back are no new evidence.
    """
    totals = exposures.sum(axis=-1, dtype=np.float64)
    weights = np.where(totals > 0, weights, 0.0)
    whole = weights.sum(axis=-1, keepdims=True)
    parts = weights / np.where(whole > 0, whole, np.nan)
    totals = np.where(totals > 0, totals, 1.0)
    rates = clicks.sum(axis=-1) / totals
    residuals = clicks - rates[..., None] * exposures
    influence = np.einsum("...e,...ek->...k", parts / totals, residuals)
    units = clicks.shape[-1]
    variance = (influence**2).sum(axis=-1) * (units / (units - 1))
    return Estimate((parts * rates).sum(axis=-1), variance)


def overlap(base: Numbers, other: Numbers) -> Floats:
    """Weights (..., E) of the epochs in a comparison, from both arms' exposures (..., E): Mantel-Haenszel's a b/(a+b).

    Proportional to the inverse variance of a difference where both arms vary alike. The measured inverse variance is
    not used: a rate that is low by chance has a low variance too, would weigh more, and pull the estimate down.
    """
    together = base + other
    return np.asarray(base * (other / np.where(together > 0, together, 1.0)), np.float64)


def lift(base: Estimate, other: Estimate) -> Estimate:
    """(other - base) / base of two independent estimates, by the delta method; NaN where the base is 0.

    Arms of one epoch have no unit in common. Over epochs of different splits they may, which makes the true variance
    smaller than this one.
    """
    low = np.where(base.value > 0, base.value, np.nan)
    variance = other.variance / low**2 + base.variance * other.value**2 / low**4
    return Estimate(other.value / low - 1.0, variance)
