"""Encoded rows: the arrays between the encoder and the module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bag:
    """Ragged ids of B rows: row b owns `values[offsets[b]:offsets[b + 1]]`, sorted, distinct and never empty."""

    values: Ints
    offsets: Ints

    def take(self, rows: Ints) -> Bag:
        """The bags of `rows`, in that order, repeats allowed."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        index = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return Bag(self.values[index], offsets)

    @staticmethod
    def concat(bags: Sequence[Bag]) -> Bag:
        ends = np.cumsum([bag.offsets[-1] for bag in bags])
        shifted = [bag.offsets[1:] + end - bag.offsets[-1] for bag, end in zip(bags, ends, strict=True)]
        return Bag(
            np.concatenate([bag.values for bag in bags]),
            np.concatenate([np.zeros(1, np.int64), *shifted]),
        )


@dataclass(frozen=True, slots=True)
class Encoded:
    """B rows of some sides' columns; `unknown` and `missing` count values by feature name."""

    numerics: Floats  # (B, N)
    ids: Ints  # (B, C)
    bags: tuple[Bag, ...]  # M of them
    unknown: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(self.ids)

    def take(self, rows: Ints) -> Encoded:
        """The chosen rows in the given order; counts are not carried over."""
        return Encoded(self.numerics[rows], self.ids[rows], tuple(bag.take(rows) for bag in self.bags))

    def slice(self, start: int, end: int) -> Encoded:
        """Rows start .. end-1, views of these; counts are not carried over, unless they are all the rows."""
        if start == 0 and end == self.rows:
            return self
        bags = (
            Bag(bag.values[bag.offsets[start] : bag.offsets[end]], bag.offsets[start : end + 1] - bag.offsets[start])
            for bag in self.bags
        )
        return Encoded(self.numerics[start:end], self.ids[start:end], tuple(bags))

    @staticmethod
    def concat(parts: Sequence[Encoded]) -> Encoded:
        """Rows of all parts in order, counts added."""
        if len(parts) == 1:
            return parts[0]
        return Encoded(
            np.concatenate([part.numerics for part in parts]),
            np.concatenate([part.ids for part in parts]),
            tuple(Bag.concat(bags) for bags in zip(*(part.bags for part in parts), strict=True)),
            add_counts(part.unknown for part in parts),
            add_counts(part.missing for part in parts),
        )

    @staticmethod
    def beside(left: Encoded, right: Encoded) -> Encoded:
        """Side by side, row by row: the columns of `left` (user and context) before those of `right` (items)."""
        return Encoded(
            np.concatenate([left.numerics, right.numerics], axis=1),
            np.concatenate([left.ids, right.ids], axis=1),
            (*left.bags, *right.bags),
            add_counts((left.unknown, right.unknown)),
            add_counts((left.missing, right.missing)),
        )


def add_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of several count-by-name mappings."""
    total: dict[str, int] = {}
    for part in counts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return total
