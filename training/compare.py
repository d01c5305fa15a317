"""Two versions on the same rows: the paired difference of their AUC and log loss, with intervals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from service.scoring.artifact import Artifact
from service.scoring.encoded import Ints
from training import metrics
from training.errors import DataFault
from training.evaluate import opened, rows_of, scores_of, streamed

Doubles = npt.NDArray[np.float64]
Z95 = 1.959963984540054


def compare_versions(
    first: Path, second: Path, path: Path, *, split: str, device: str, cache: Path | None = None
) -> dict[str, Any]:
    """The rows of PATH that lie in `split` by both versions' own cuts, scored by both.

    Raises ArtifactError, or DataFault where the versions do not read the same rows.
    """
    a, b = (opened(folder, device) for folder in (first, second))
    with streamed(cache) as home:
        return _compared(a, b, path, split, home)


def _compared(a: Artifact, b: Artifact, path: Path, split: str, cache: Path) -> dict[str, Any]:
    (data_a, rows_a), (data_b, rows_b) = (rows_of(one, path, split, cache) for one in (a, b))
    if len(data_a.labels) != len(data_b.labels) or not np.array_equal(data_a.labels, data_b.labels):
        raise DataFault(f"{path}: the two versions read other rows or labels of it; their [data] must agree")
    rows = np.intersect1d(rows_a, rows_b)
    if not len(rows):
        raise DataFault(f"{path}: no row lies in the {split} part of both versions")
    labels = data_a.labels[rows] > 0
    scores = [scores_of(one, data, rows).astype(np.float64) for one, data in ((a, data_a), (b, data_b))]
    units = None if data_a.units is None else data_a.units[rows]
    found = {"a": a.version, "b": b.version, "split": split, "rows": len(rows), "positives": int(labels.sum())}
    found |= {"unit": None if units is None else a.encoder.schema.unit}
    return found | paired(labels, scores[0], scores[1], units)


def paired(labels: npt.NDArray[np.bool_], a: Doubles, b: Doubles, units: Ints | None) -> dict[str, Any]:
    """Differences b − a with 95 % intervals and two-sided p.

    AUC by DeLong's components (DeLong et al. 1988); where there are units, components of one unit's rows are added
    before they are squared (Obuchowski 1997), as rows of one unit are not independent. A row without unit is its own.
    """
    groups = (
        np.arange(len(labels)) if units is None else np.where(units < 0, units.max() + 1 + np.arange(len(units)), units)
    )
    losses = [_losses(labels, scores) for scores in (a, b)]
    change = losses[1] - losses[0]
    found = {
        "logloss": _judged(
            float(losses[0].mean()), float(losses[1].mean()), (change - change.mean()) / len(change), groups
        )
    }
    if labels.all() or not labels.any():
        return {"auc": None, "reason": "one class only", **found}
    (auc_a, parts_a), (auc_b, parts_b) = _components(labels, a), _components(labels, b)
    return {"auc": _judged(auc_a, auc_b, parts_b - parts_a, groups), **found}


def _components(labels: npt.NDArray[np.bool_], scores: Doubles) -> tuple[float, Doubles]:
    """The AUC, and what each row adds to its error (R,), which sums to 0."""
    positives, negatives = int(labels.sum()), int((~labels).sum())
    ranks = metrics.ranks(scores)
    found = np.empty(len(labels))
    # Share of negatives below a positive, and of positives above a negative: ranks in all less ranks in the class.
    found[labels] = (ranks[labels] - metrics.ranks(scores[labels])) / negatives
    found[~labels] = 1 - (ranks[~labels] - metrics.ranks(scores[~labels])) / positives
    auc = float(found[labels].mean())
    return auc, np.where(labels, (found - auc) / positives, (found - auc) / negatives)


def _losses(labels: npt.NDArray[np.bool_], scores: Doubles) -> Doubles:
    p = np.clip(scores, 1e-7, 1 - 1e-7)
    return np.asarray(-np.where(labels, np.log(p), np.log1p(-p)), np.float64)


def _judged(a: float, b: float, parts: Doubles, groups: Ints) -> dict[str, Any]:
    sums = np.bincount(np.unique(groups, return_inverse=True)[1], parts)
    count = len(sums)
    error = math.sqrt(float((sums**2).sum()) * count / max(1, count - 1))
    difference = b - a
    p = math.erfc(abs(difference) / error / math.sqrt(2)) if error else float(difference == 0)
    interval = [difference - Z95 * error, difference + Z95 * error]
    return {"a": a, "b": b, "difference": difference, "interval": interval, "p": p}
