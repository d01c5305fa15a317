"""Ids are checked before they reach a GPU: one beyond its table there ends the process's use of the device."""

from __future__ import annotations

import numpy as np

from service.scoring.encoded import Encoded, Ints
from service.scoring.layout import IdColumn, Layout


class OutOfRange(IndexError):
    """An id or a row that its table does not have."""


class Bounds:
    """The sizes of a version's tables."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._sizes: dict[tuple[str, ...], Ints] = {
            sides: np.array([column.size for column in layout.ids if column.side in sides], np.int64)
            for sides in (("user", "context", "item"), ("user", "context"), ("item",))
        }

    def check(self, encoded: Encoded, sides: tuple[str, ...]) -> None:
        """Raises OutOfRange where an id of the rows, which hold the columns of `sides`, lies outside its table."""
        sizes = self._sizes[sides]
        if encoded.ids.shape[1] != len(sizes):
            raise OutOfRange(f"{encoded.ids.shape[1]} id columns, {len(sizes)} are needed")
        if ((encoded.ids < 0) | (encoded.ids >= sizes)).any():
            raise OutOfRange("an id lies outside its table")
        for bag, column in zip(encoded.bags, self._bags(sides), strict=True):
            check_rows(bag.values, column.size)
            if bag.offsets[0] != 0 or (np.diff(bag.offsets) < 0).any() or bag.offsets[-1] != len(bag.values):
                raise OutOfRange("the offsets of a list of ids do not ascend to its end")

    def _bags(self, sides: tuple[str, ...]) -> list[IdColumn]:
        return [column for column in self._layout.bags if column.side in sides]


def check_rows(rows: Ints, size: int) -> None:
    """Raises OutOfRange where a row is not in 0 .. size-1."""
    if rows.size and (rows.min() < 0 or rows.max() >= size):
        raise OutOfRange(f"a row lies outside 0 .. {size - 1}")
