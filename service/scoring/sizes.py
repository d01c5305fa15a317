"""Batch sizes that a kernel is made for: oneDNN compiles one for each number of rows, so few are used."""

from __future__ import annotations

import numpy as np

from service.scoring.encoded import Bag, Encoded, Ints

LARGEST = 4096  # beyond it rows are worked through at whatever size they come
# From below: how far sizes up to the first number stand apart. Padding costs 8 % at a hundred rows, less beyond.
_STEPS = ((256, 16), (1024, 64), (LARGEST, 128))


def padded_size(rows: int) -> int:
    """The smallest size of a kernel that holds `rows`, themselves beyond LARGEST."""
    for largest, step in _STEPS:
        if rows <= largest:
            return -(-rows // step) * step
    return rows


def sizes_from(rows: int) -> list[int]:
    """All sizes of at least `rows`, up to LARGEST."""
    found, size = [], padded_size(rows)
    while size <= LARGEST:
        found.append(size)
        size = padded_size(size + 1)
    return found


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
