"""Raw columns of some rows as plain arrays: bounded, whatever the size of the data.

Up to MOST_ROWS rows all are looked at. Beyond, a seeded draw of them is, and for counts per user or item whole users
or items are drawn, so that a count over the file can still be counted again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.scoring.columns import bag_column, number_column, seconds_column, text_column
from service.scoring.encoded import Ints
from service.scoring.schema import Feature

Doubles = npt.NDArray[np.float64]
MOST_ROWS = 300_000
TRAIN, VALID, TEST = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Column:
    """One feature: `codes` (R,) say which value a row has (-1 missing); `numbers` (R,) are there for numbers and times.

    Times are epoch seconds. NaN is a missing number.
    """

    name: str
    kind: str
    side: str
    codes: Ints
    numbers: Doubles | None

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        return self.codes < 0


@dataclass(frozen=True)
class Sample:
    """R rows with their columns; `part` (R,) is 0 training, 1 validation, 2 test, -1 in a gap between them."""

    columns: tuple[Column, ...]
    labels: npt.NDArray[np.bool_]
    part: npt.NDArray[np.int8]
    units: Ints | None
    items: Ints | None
    times: Doubles | None
    rows: Ints  # which rows of the data these are

    @cached_property
    def train(self) -> Ints:
        return np.flatnonzero(self.part == TRAIN)

    @cached_property
    def test(self) -> Ints:
        """Rows of the test part, of the validation part where there is none."""
        found = np.flatnonzero(self.part == TEST)
        return found if len(found) else np.flatnonzero(self.part == VALID)

    def keys(self) -> Iterator[tuple[str, Ints]]:
        """What rows may be grouped by: unit, item, and every categorical feature, each once."""
        seen: list[Ints] = []
        named = [("unit", self.units), ("item", self.items)]
        named += [(c.name, c.codes) for c in self.columns if c.kind == "categorical"]
        for name, codes in named:
            if codes is None or any(_same(codes, other) for other in seen):
                continue
            seen.append(codes)
            yield name, codes


def column_of(feature: Feature, column: pa.ChunkedArray) -> Column:
    """A feature's raw values; raises DataError."""
    if feature.kind == "numeric":
        numbers = number_column(feature.name, column)
    elif feature.kind == "datetime":
        seconds, missing = seconds_column(feature.name, column)
        numbers = np.where(missing, np.nan, seconds.astype(np.float64))
    elif feature.kind == "categorical":
        return Column(feature.name, feature.kind, feature.side, text_column(feature.name, column).codes, None)
    else:
        return Column(feature.name, feature.kind, feature.side, _set_codes(feature.name, column), None)
    codes = np.full(len(numbers), -1, np.int64)
    known = ~np.isnan(numbers)
    codes[known] = np.unique(numbers[known], return_inverse=True)[1]
    return Column(feature.name, feature.kind, feature.side, codes, numbers)


def spread(rows: int, most: int, seed: int) -> Ints:
    """All row numbers, or a seeded draw of `most` of them in order."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def whole_groups(keys: Ints, most: int, seed: int) -> Ints:
    """Rows of as many whole groups, drawn at random, as fit into `most` rows."""
    if len(keys) <= most:
        return np.arange(len(keys))
    counts = np.bincount(keys[keys >= 0])
    order = np.random.default_rng(seed).permutation(len(counts))
    chosen = np.zeros(len(counts) + 1, bool)  # the last place is for -1, no key
    chosen[order[np.cumsum(counts[order]) <= most]] = True
    return np.flatnonzero(chosen[keys])


def quantile_codes(column: Column, rows: Ints, bins: int = 64) -> Ints:
    """Codes of `rows`, many-valued numbers in quantiles; 0 is missing."""
    codes = column.codes[rows]
    if column.numbers is None or codes.max(initial=-1) < 2 * bins:
        return codes + 1
    values = column.numbers[rows]
    known = ~np.isnan(values)
    edges = np.unique(np.quantile(values[known], np.linspace(0, 1, bins + 1)[1:-1]))
    found = np.zeros(len(rows), np.int64)
    found[known] = 1 + np.searchsorted(edges, values[known], side="right")
    return found


def _set_codes(name: str, column: pa.ChunkedArray) -> Ints:
    """A number for each distinct list: the sum of a random number for each of its values."""
    bags = bag_column(name, column)
    marks = np.random.default_rng(1).integers(0, 2**62, len(bags.distinct), dtype=np.int64)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(marks[bags.codes])])
    codes = np.unique(sums[bags.offsets[1:]] - sums[bags.offsets[:-1]], return_inverse=True)[1].astype(np.int64)
    return np.where(np.diff(bags.offsets) == 0, -1, codes)


def _same(left: Ints, right: Ints) -> bool:
    """Whether two codings group the rows alike."""
    if len(left) != len(right) or left.max(initial=-1) != right.max(initial=-1):
        return False
    partner = np.zeros(left.max(initial=-1) + 2, np.int64)
    partner[left] = right
    return bool((partner[left] == right).all())
