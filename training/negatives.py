"""Negative downsampling: some of the negatives are trained on, and the module undoes what that does to its scores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from service.scoring.encoded import Ints


def kept_rows(rows: Ints, labels: npt.NDArray[np.float32], share: float, seed: int) -> Ints:
    """The `rows` to train on, in their order: all positives, and each negative with the chance `share`."""
    if share >= 1:
        return rows
    drawn = np.random.Generator(np.random.Philox(seed)).random(len(rows))
    return rows[(labels[rows] > 0) | (drawn < share)]
