"""An experiment's evidence as arrays, one row a version.

Shape letters: V versions, E epochs, K sub-buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from service.experiments.evidence import SUB_BUCKETS, Arm, Counts, Evidence, Hashes, Joined

Basis = Literal["impressions", "predictions"]


@dataclass(frozen=True, slots=True)
class Table:
    """`versions` are the default and all that had weight or traffic, the default first; counts are (V, E, K).

    `basis` says what clicks are judged by: impressions, or predictions where nobody ever sent an impression.
    `challengers` are those that had weight beside the default's.
    """

    versions: tuple[str, ...]
    challengers: tuple[str, ...]
    basis: Basis
    predictions: Counts
    impressions: Counts
    clicks: Counts

    @property
    def exposures(self) -> Counts:
        return self.impressions if self.basis == "impressions" else self.predictions

    def row(self, version: str) -> tuple[Counts, Counts]:
        """(clicks, exposures) of a version, (E, K) each."""
        at = self.versions.index(version)
        return self.clicks[at], self.exposures[at]


def table_of(evidence: Evidence) -> Table:
    """Lay the evidence out."""
    arms = [arm for epoch in evidence.epochs for arm in epoch.arms]
    weighted = {arm.version for arm in arms if arm.share > 0}
    seen = weighted | {arm.version for arm in arms if has_traffic(arm)}
    versions = (*([evidence.default] if evidence.default else []), *sorted(seen - {evidence.default}))
    predictions, impressions, clicks = (
        np.zeros((len(versions), len(evidence.epochs), SUB_BUCKETS), np.int64) for _ in range(3)
    )
    for at, epoch in enumerate(evidence.epochs):
        for arm in epoch.arms:
            if arm.version in versions:
                row = versions.index(arm.version)
                predictions[row, at] += arm.predictions
                impressions[row, at] += arm.impressions
                clicks[row, at] += arm.clicks
    basis: Basis = "impressions" if impressions.any() else "predictions"
    challengers = tuple(sorted(weighted - {evidence.default}))
    return Table(versions, challengers, basis, predictions, impressions, clicks)


def has_traffic(arm: Arm) -> bool:
    """Whether anything at all was counted for the arm."""
    return bool(len(arm.units) or arm.errors or arm.predictions.any() or arm.impressions.any() or arm.clicks.any())


def distinct_units(evidence: Evidence, version: str) -> int:
    """How many units the version has had over all epochs: the samples' union below the least threshold, scaled up."""
    epochs = [epoch for epoch in evidence.epochs if any(arm.version == version for arm in epoch.arms)]
    if not epochs:
        return 0
    threshold = min(epoch.threshold for epoch in epochs)
    units = [arm.units for one in epochs for arm in one.arms if arm.version == version]
    if threshold < 1.0:
        limit = np.uint64(int(threshold * 2**64))
        units = [hashes[hashes < limit] for hashes in units]
    return round(distinct(units) / threshold)


def distinct(units: Sequence[Hashes]) -> int:
    """How many different units there are in all of these together."""
    together = np.sort(np.concatenate([*units, np.zeros(0, np.uint64)]))
    return len(together) and 1 + int(np.count_nonzero(together[1:] != together[:-1]))


def joined_of(evidence: Evidence, version: str) -> Joined | None:
    """All sampled answers of a version, whichever version shadowed them; None where there are none."""
    found = [one for one in evidence.joined if one.version == version]
    if not found:
        return None
    scores, clicked, units = (
        np.concatenate([getattr(one, name) for one in found]) for name in ("scores", "clicked", "units")
    )
    return Joined(version, scores, clicked, units)


def totals(table: Table) -> npt.NDArray[np.int64]:
    """(E,) exposures of all arms together."""
    return np.asarray(table.exposures.sum(axis=(0, 2)), np.int64)
