"""The figures of the report and the model card, besides what the manifest holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from service.scoring.encoded import Floats
from training.report.importance import Importance

Labels = npt.NDArray[np.float32]
Points = list[tuple[float, float]]
MOST_POINTS = 200  # of a curve
BINS = 40  # of a histogram


@dataclass(frozen=True, slots=True)
class Evidence:
    """One version: its manifest's entries, and the labels (R,) and scores (R,) of the part that judges it.

    `before` are the scores without a correction, None where there is none.
    """

    version: str
    manifest: Mapping[str, Any]
    part: str
    labels: Labels
    scores: Floats
    before: Floats | None
    importances: Sequence[Importance]

    @property
    def metrics(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.manifest["metrics"][self.part]
        return found

    @property
    def leaks(self) -> list[Mapping[str, Any]]:
        return [one for one in self.manifest["leakage"]["findings"] if one["level"] == "leak"]


def roc(labels: Labels, scores: Floats) -> Points:
    """Share of negatives and of positives scored at least so high, from (0, 0) to (1, 1)."""
    hits, ends = _by_falling_score(labels, scores)
    positives, negatives = max(1, int(hits[-1])), max(1, len(labels) - int(hits[-1]))
    points = [(float((end - hit) / negatives), float(hit / positives)) for end, hit in zip(ends, hits, strict=True)]
    return [(0.0, 0.0), *_thinned(points)]


def precision_recall(labels: Labels, scores: Floats) -> Points:
    """Recall and precision at each height of score."""
    hits, ends = _by_falling_score(labels, scores)
    positives = max(1, int(hits[-1]))
    return _thinned([(float(hit / positives), float(hit / end)) for end, hit in zip(ends, hits, strict=True) if hit])


def histograms(labels: Labels, scores: Floats) -> tuple[Points, Points]:
    """Density of the scores of negatives and of positives: (middle of a bin, share of the class in it)."""
    edges = np.linspace(0, float(min(1.0, max(scores.max(initial=0.0) * 1.02, 1e-3))), BINS + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    both = []
    for chosen in (labels == 0, labels > 0):
        counts = np.histogram(scores[chosen], edges)[0] / max(1, int(chosen.sum()))
        both.append(list(zip(middles.tolist(), counts.tolist(), strict=True)))
    return both[0], both[1]


def _by_falling_score(labels: Labels, scores: Floats) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Positives among the first rows, and their number, at each end of a run of ties."""
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True)) + 1
    return np.cumsum(labels[order] > 0)[ends - 1], ends


def _thinned(points: Points) -> Points:
    if len(points) <= MOST_POINTS:
        return points
    return [points[int(n)] for n in np.linspace(0, len(points) - 1, MOST_POINTS)]
