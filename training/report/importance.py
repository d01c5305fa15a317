"""Permutation importance (Breiman 2001): what the model loses when one feature's values are dealt out at random."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from service.scoring.encoded import Encoded, Floats
from service.scoring.layout import Layout
from training import metrics
from training.batches import Batch

MOST_ROWS = 20_000
DEALS = 3  # permutations a feature is judged by


@dataclass(frozen=True, slots=True)
class Importance:
    """What a feature is worth: the AUC that goes and the log loss that comes without it, means over the deals."""

    feature: str
    auc_drop: float
    auc_spread: float  # half the range over the deals
    logloss_rise: float


def importances(
    score: Callable[[Batch], Floats], layout: Layout, encoded: Encoded, labels: Floats, device: str, seed: int
) -> list[Importance]:
    """All features, the most useful first, judged by a draw of the rows; none where they are of one class."""
    generator = torch.Generator().manual_seed(seed)
    count = min(len(labels), MOST_ROWS)
    chosen = np.sort(torch.randperm(len(labels), generator=generator)[:count].numpy())
    labels = labels[chosen]
    rows = Batch.of(encoded.take(chosen), labels, device)
    plain = score(rows)
    auc = metrics.auc(labels, plain)
    if auc is None:
        return []
    loss = metrics.logloss(labels, plain)
    found = []
    names = [column.name for column in layout.numerics] + [column.feature for column in (*layout.ids, *layout.bags)]
    for name in dict.fromkeys(names):
        drops, rises = [], []
        for _ in range(DEALS):
            deal = torch.randperm(count, generator=generator).to(rows.labels.device)
            scores = score(_dealt(rows, rows.take(deal), layout, name))
            drops.append(auc - (metrics.auc(labels, scores) or 0.5))
            rises.append(metrics.logloss(labels, scores) - loss)
        found.append(Importance(name, float(np.mean(drops)), float(np.ptp(drops)) / 2, float(np.mean(rises))))
    return sorted(found, key=lambda one: -one.auc_drop)


def _dealt(rows: Batch, other: Batch, layout: Layout, feature: str) -> Batch:
    """`rows` with every column of one feature as `other` has it."""
    numerics, ids = rows.numerics.clone(), rows.ids.clone()
    for n, numeric in enumerate(layout.numerics):
        if numeric.name == feature:
            numerics[:, n] = other.numerics[:, n]
    for n, column in enumerate(layout.ids):
        if column.feature == feature:
            ids[:, n] = other.ids[:, n]
    theirs = [column.feature == feature for column in layout.bags]
    values = [other.bag_values[n] if taken else rows.bag_values[n] for n, taken in enumerate(theirs)]
    offsets = [other.bag_offsets[n] if taken else rows.bag_offsets[n] for n, taken in enumerate(theirs)]
    return dataclasses.replace(rows, numerics=numerics, ids=ids, bag_values=values, bag_offsets=offsets)
