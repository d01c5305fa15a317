"""One version against the default over all epochs that both were in, and one version by itself.

Shape letters: K sub-buckets, E epochs; `...` any axes before them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.experiments.sequential import half_width, p_value
from service.experiments.settings import ReportSettings
from service.experiments.statistics import Floats, Numbers, lift, overlap, standardised


class Interval(NamedTuple):
    """A value and an interval for it that is valid at every look; NaN where there is nothing to say."""

    value: Floats
    low: Floats
    high: Floats


class Comparison(NamedTuple):
    """The lift over the default. `time` is the part of the planned size that is there, `clicks` those of the arm that
    has fewer, `p` already corrected for the number of challengers; `judged` says whether a verdict may rest on it.
    """

    lift: Interval
    p: Floats
    time: Floats
    clicks: Floats
    judged: npt.NDArray[np.bool_]


def compare(
    base: tuple[Numbers, Numbers], other: tuple[Numbers, Numbers], challengers: int, settings: ReportSettings
) -> Comparison:
    """(clicks, exposures) of the default and of the other, (..., E, K) each; alpha is shared out over the challengers
    (Bonferroni).

    The size that counts is 4 times the sum of the weights: the exposures of an equally split test with as much to say,
    so a 90/10 split, which says less, also ages more slowly.
    """
    alpha = settings.alpha / max(challengers, 1)
    weights = overlap(base[1].sum(axis=-1), other[1].sum(axis=-1))
    estimate = lift(standardised(*base, weights), standardised(*other, weights))
    size = 4.0 * weights.sum(axis=-1)
    half = half_width(estimate, size, alpha=alpha, planned=settings.planned)
    p = p_value(estimate, size, alpha=alpha, planned=settings.planned)
    fewest = np.minimum(*[np.where(weights > 0, arm[0].sum(axis=-1), 0).sum(axis=-1) for arm in (base, other)])
    time = size / settings.planned
    known = np.isfinite(half) & (half > 0)
    judged = known & (time >= settings.least_time) & (fewest >= settings.least_clicks)
    value = estimate.value
    interval = Interval(value, np.where(known, value - half, np.nan), np.where(known, value + half, np.nan))
    return Comparison(interval, np.minimum(1.0, np.where(known, p, 1.0) * max(challengers, 1)), time, fewest, judged)


def click_rate(clicks: Numbers, exposures: Numbers, totals: Numbers, settings: ReportSettings) -> Interval:
    """A version's own rate, (..., E, K) counts, its epochs weighed by all arms' exposures `totals` (..., E).

    With logged shares this is the self-normalised inverse propensity estimate: in one epoch clicks by exposures, over
    several the rate as if the version had had the same part of each.
    """
    own = exposures.sum(axis=-1)
    weights = np.where(own > 0, totals, 0.0)
    estimate = standardised(clicks, exposures, weights)
    squares = (weights**2 / np.where(own > 0, own, 1.0)).sum(axis=-1)
    # What exposures of one split would say as much, as a part of a test with two arms.
    size = 2.0 * weights.sum(axis=-1) ** 2 / np.where(squares > 0, squares, np.nan)
    half = half_width(estimate, size, alpha=settings.alpha, planned=settings.planned)
    half = np.where(half > 0, half, np.nan)
    low, high = estimate.value - half, estimate.value + half
    return Interval(estimate.value, np.maximum(low, 0.0), high)
