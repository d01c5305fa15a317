"""How well scores ranked and predicted the clicks that followed, with variances clustered by unit.

Shape letters: P sampled predictions' items, U units among them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.experiments.statistics import Estimate, ratio

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]


class Ranking(NamedTuple):
    """The AUC, and what each item contributes to its error: `influence` (P,) adds up to 0. NaN with one class only."""

    auc: float
    influence: Floats


def ranking(scores: Floats, clicked: Flags) -> Ranking:
    """The share of (clicked, not clicked) pairs that are in order, a tie as half: exact, by ranks.

    The influence is that of DeLong, DeLong and Clarke-Pearson (1988): an item's part of the pairs it is in that are in
    order, less the AUC, by the size of its class.
    """
    positives, negatives = np.sort(scores[clicked]), np.sort(scores[~clicked])
    if not len(positives) or not len(negatives):
        return Ranking(float("nan"), np.full(len(scores), np.nan))
    below = _placed(negatives, scores) / len(negatives)
    above = 1.0 - _placed(positives, scores) / len(positives)
    auc = float(below[clicked].mean())
    influence = np.where(clicked, (below - auc) / len(positives), (above - auc) / len(negatives))
    return Ranking(auc, influence)


def online_auc(scores: Floats, clicked: Flags, units: Hashes) -> Estimate:
    """The AUC with the variance of units drawn, not of items (Obuchowski 1997)."""
    found = ranking(scores, clicked)
    return Estimate(np.asarray(found.auc), np.asarray(clustered(found.influence, units)))


def auc_gain(scores: Floats, others: Floats, clicked: Flags, units: Hashes) -> Estimate:
    """AUC of `others` less that of `scores` on the same items: paired, so what both find hard cancels out."""
    first, second = ranking(scores, clicked), ranking(others, clicked)
    influence = second.influence - first.influence
    return Estimate(np.asarray(second.auc - first.auc), np.asarray(clustered(influence, units)))


def calibration(scores: Floats, clicked: Flags, units: Hashes) -> Estimate:
    """Clicks predicted by clicks seen; 1 is right, above it the scores are too high. NaN without clicks."""
    which = _numbered(units)
    predicted, seen = np.bincount(which, scores), np.bincount(which, clicked)
    if not seen.any() or len(seen) < 2:
        value = float(predicted.sum() / seen.sum()) if seen.any() else float("nan")
        return Estimate(np.asarray(value), np.asarray(np.nan))
    return ratio(predicted, seen)


def clustered(influence: Floats, units: Hashes) -> float:
    """The variance of a sum of influences (P,) of independent units; NaN with fewer than two of them."""
    sums = np.bincount(_numbered(units), influence)
    count = len(sums)
    return float((sums**2).sum() * count / (count - 1)) if count > 1 else float("nan")


def _placed(ordered: Floats, scores: Floats) -> Floats:
    """How many of `ordered` lie below each score, a tie as half."""
    left, right = np.searchsorted(ordered, scores, "left"), np.searchsorted(ordered, scores, "right")
    return np.asarray((left + right) / 2.0, np.float64)


def _numbered(units: Hashes) -> npt.NDArray[np.intp]:
    return np.unique(units, return_inverse=True)[1]
