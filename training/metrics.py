"""Offline metrics, exact and in NumPy: AUC, log loss, GAUC, normalised entropy, calibration."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def auc(labels: Array, scores: Array) -> float | None:
    """Area under the ROC curve by ranks, a tie counts one half; None where only one class is there."""
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return None
    return float((ranks(scores)[labels > 0].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def gauc(labels: Array, scores: Array, units: Array) -> float | None:
    """AUC inside each unit, averaged by its rows over units with both classes (Zhu et al. 2017); below 0 is no unit."""
    known = units >= 0
    labels, scores, units = labels[known], scores[known], units[known]
    order = np.argsort(units, kind="stable")
    starts = np.flatnonzero(np.diff(units[order], prepend=-1))
    total = weight = 0.0
    for group in np.split(order, starts[1:]) if len(order) else ():
        inside = auc(labels[group], scores[group])
        if inside is not None:
            total, weight = total + inside * len(group), weight + len(group)
    return total / weight if weight else None


def logloss(labels: Array, scores: Array) -> float:
    """Mean log loss in nats; probabilities are held 1e-7 away from 0 and 1, where float32 has none between."""
    p = np.clip(scores.astype(np.float64), 1e-7, 1 - 1e-7)
    return float(-np.where(labels > 0, np.log(p), np.log1p(-p)).mean())


def calibration_groups(labels: Array, scores: Array, groups: int = 20) -> tuple[Array, Array, Array]:
    """Rows, mean score and rate of positives of groups of about equal size, by rising score; ties stay together."""
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    ends = np.arange(1, groups + 1) * len(scores) // groups
    starts = np.searchsorted(ordered, ordered[np.minimum(np.concatenate([[0], ends[:-1]]), len(scores) - 1)])
    starts = np.unique(starts)
    rows = np.diff(np.append(starts, len(scores)))
    return rows, np.add.reduceat(ordered, starts) / rows, np.add.reduceat(labels[order], starts) / rows


def ece(labels: Array, scores: Array) -> float:
    """Expected calibration error over twenty groups of equal size (Naeini et al. 2015): mean |score − rate|."""
    rows, mean, rate = calibration_groups(labels.astype(np.float64), scores.astype(np.float64))
    return float((rows * np.abs(mean - rate)).sum() / rows.sum())


def evaluate(labels: Array, scores: Array, units: Array | None) -> dict[str, Any]:
    """All metrics of one part; what is undefined is None and `reason` says why.

    ne: log loss over that of the base rate (He et al. 2014); below 1 is better than knowing the rate alone.
    calibration: mean score over the rate of positives; ece: how far it is off, on the average over groups of rows.
    """
    rows, positives = len(labels), int(labels.sum())
    found: dict[str, Any] = {"auc": None, "logloss": None, "gauc": None, "ne": None, "calibration": None, "ece": None}
    found |= {"rows": rows, "positives": positives}
    if not rows:
        return found | {"reason": "no rows"}
    found["logloss"], found["ece"] = logloss(labels, scores), ece(labels, scores)
    if positives:
        found["calibration"] = float(scores.mean(dtype=np.float64)) * rows / positives
    if positives in (0, rows):
        return found | {"reason": f"one class only: {positives} of {rows} rows are positive"}
    found["auc"] = auc(labels, scores)
    found["gauc"] = None if units is None else gauc(labels, scores, units)
    found["ne"] = found["logloss"] / logloss(labels, np.full(rows, positives / rows))
    return found


def ranks(values: Array) -> Array:
    """Ranks from 1, ties their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[inverse]
