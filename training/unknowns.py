"""How often a column's value should be replaced by the unknown id in training.

A version meets values that training never saw: in MovieLens nine of ten users of the last tenth are new. An unknown id
that is trained on a token share of rows says what *rare* looks like; the rest of the model would still lean on ids that
it will not have. So the share is measured: how many rows of the training part's own last stretch (by the split's order)
hold a value that the rows before it lack. Replacing that share trains the model in the mix that it will serve.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from service.scoring.encoded import Encoded, Ints
from service.scoring.layout import UNKNOWN, Layout

LEAST = 0.01  # of a column in which nothing is rare and nothing was ever new
# Known values must keep being trained too: they carry what is theirs, which would else be laid at others' doors (the
# taste of a known user at the item's). Beyond a third the validation AUC of rolling time windows falls.
MOST = 0.3


def unknown_shares(
    layout: Layout, train: Encoded, positions: npt.NDArray[np.float64] | None, holdout: float
) -> tuple[list[float], list[float]]:
    """The share for each id column and each bag.

    `positions` order the training rows in time and `holdout` is the share of them to look at; without positions the
    chance that a fresh row's value is new is the share of values seen once (Good 1953, with Turing).
    """
    order = None if positions is None else np.argsort(positions, kind="stable")
    ids = []
    for n, column in enumerate(layout.ids):
        values = train.ids[:, n]
        ids.append(_share(values, column.size, _new(values, column.size, order, holdout), column.unknown_trained))
    bags = [0.0 if column.unknown_trained else LEAST for column in layout.bags]
    return ids, bags


def _new(values: Ints, size: int, order: Ints | None, holdout: float) -> float:
    if order is None:
        return float((np.bincount(values, minlength=size) == 1).sum() / len(values))
    last = max(1, round(len(values) * holdout))
    before, after = values[order[:-last]], values[order[-last:]]
    return float((np.bincount(before, minlength=size)[after] == 0).mean())


def _share(values: Ints, size: int, new: float, unknown_trained: bool) -> float:
    """What to replace, given that rare values hold the unknown id already in some rows."""
    already = float((values == UNKNOWN).mean())
    target = min(MOST, max(new, 0.0 if unknown_trained else LEAST))
    return max(0.0, (target - already) / (1 - already)) if already < 1 else 0.0
