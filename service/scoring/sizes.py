"""Sizes of blocks of rows: bounded, and few, as oneDNN compiles kernels for each number of rows that it meets."""

from __future__ import annotations

import numpy as np

from service.scoring.encoded import Bag, Encoded, Ints

# Rows that a CPU works on at a time: what stands between two layers stays in its cache, and memory is bounded.
BLOCK = 512
# How far the sizes up to the first number stand apart. Padding costs 8 % at a hundred rows, less beyond.
_STEPS = ((256, 16), (BLOCK, 32))


def padded_size(rows: int) -> int:
    """The smallest size that holds `rows`, at most BLOCK of them."""
    step = next(step for largest, step in _STEPS if rows <= largest)
    return -(-rows // step) * step


def sizes_from(rows: int) -> list[int]:
    """All sizes that hold `rows` or more."""
    return sorted({padded_size(one) for one in range(rows, BLOCK + 1)})


def pad_index(index: Ints, size: int) -> Ints:
    """`index` with its last entry repeated up to `size`."""
    if len(index) == size:
        return index
    padded = np.empty(size, np.int64)
    padded[: len(index)] = index
    padded[len(index) :] = index[-1]
    return padded


def pad_rows(encoded: Encoded, size: int) -> Encoded:
    """`encoded` with rows of zeros and empty bags up to `size`: what they score is thrown away."""
    if encoded.rows == size:
        return encoded
    rows = encoded.rows
    numerics = np.zeros((size, encoded.numerics.shape[1]), np.float32)
    ids = np.zeros((size, encoded.ids.shape[1]), np.int64)
    numerics[:rows], ids[:rows] = encoded.numerics, encoded.ids
    return Encoded(numerics, ids, tuple(Bag(bag.values, pad_index(bag.offsets, size + 1)) for bag in encoded.bags))
