"""Request rows to tensors, block by block: what `FeatureEncoder.encode_rows` does value by value.

All categories of a block are found in one look at the version's index, all numbers scaled as one matrix. Whatever is
out of the ordinary - a value that breaks a rule, most of all - goes the long way, which says what is wrong and where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from service.scoring.categorical import CategoricalField
from service.scoring.encoded import Bag, Encoded, Floats, Ints, add_counts
from service.scoring.features import FeatureEncoder
from service.scoring.fields import Field, missing_id
from service.scoring.index import EMPTY, KeyIndex, Keys
from service.scoring.keys import Odd, integer_block, text_block
from service.scoring.layout import UNKNOWN
from service.scoring.numeric import NumericField, scaled
from service.scoring.reader import INTEGER, NUMBER, OTHER, TEXT, Entry, ReadRows, RowReader, is_compiled
from service.scoring.schema import SIDES
from service.scoring.values import FaultList

Row = Mapping[str, object]
Values = list[Any]
Counts = dict[str, int]


class RowEncoder:
    """Rows of the given sides by one version; equal to `encoder.encode_rows` in every array, count and fault."""

    def __init__(self, encoder: FeatureEncoder, sides: Sequence[str] = SIDES) -> None:
        self._encoder, self._sides = encoder, sides
        self._numbers, self._categories, self._others = _Numbers(), _Categories(), list[tuple[Field, Any]]()
        self._columns = self._bags = 0
        for one in encoder.fields:
            if one.feature.side in sides:
                self._take(one)
        self._checks_pairs = encoder.multiplies_bags and set(sides) == set(SIDES)

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """B rows; raises as `FeatureEncoder.encode_rows`."""
        try:
            return self._encode(rows)
        except Odd:
            return self._encoder.encode_rows(rows, self._sides)

    def reader(self, others: Iterable[str]) -> RowReader | None:
        """What reads such rows straight from JSON, `others` being names that no column is made of.

        None where it cannot: lists, times and hashed categories are for Python, as everything is without a compiler.
        """
        index = self._categories.index
        if index is None or self._others or not is_compiled():
            return None
        entries = [*self._numbers.entries(), *self._categories.entries()]
        if "item" not in self._sides:  # their names come in two objects
            second = {one.feature.name for one in self._encoder.fields if one.feature.side == "context"}
            entries = [replace(one, part=int(one.name in second)) for one in entries]
        names = {one.name for one in entries}
        entries += [Entry(name, OTHER) for name in others if name not in names]
        return RowReader(entries, len(self._numbers), self._columns, index)

    def finish(self, read: Sequence[ReadRows]) -> Encoded:
        """What was read by this version's reader, as `encode` would give it; raises Odd where it breaks a rule."""
        raw, ids = read[0].reader.together(read)
        numerics = self._numbers.finish(raw, np.isnan(raw), ids)
        return Encoded(
            numerics, ids, (), add_counts(one.unknown for one in read), add_counts(one.missing for one in read)
        )

    def _take(self, one: Field) -> None:
        """Give a field its columns, in the order of the tensors."""
        width = len(one.id_columns()) if one.feature.kind != "multi" else 0
        places = list(range(self._columns, self._columns + width))
        self._columns += width
        if isinstance(one, NumericField):
            self._numbers.add(one, places)
        elif isinstance(one, CategoricalField) and self._categories.takes(one):
            self._categories.add(one, places[0])
        elif one.feature.kind == "multi":
            self._others.append((one, self._bags))
            self._bags += 1
        else:
            self._others.append((one, places))

    def _encode(self, rows: Sequence[Row]) -> Encoded:
        ids = np.empty((len(rows), self._columns), np.int64)
        unknown: Counts = {}
        missing: Counts = {}
        numerics = self._numbers.encode(rows, ids, missing)
        self._categories.encode(rows, ids, unknown, missing)
        bags: list[Bag] = []
        for one, places in self._others:
            name, faults = one.feature.name, FaultList()
            piece = one.encode_values([row.get(name) for row in rows], faults)
            if faults.found:
                raise Odd
            if piece.bag is not None:
                bags.append(piece.bag)
            for place, column in zip(places if piece.ids else (), piece.ids, strict=True):
                ids[:, place] = column
            if piece.unknown:
                unknown[name] = piece.unknown
            if piece.missing:
                missing[name] = piece.missing
        encoded = Encoded(numerics, ids, tuple(bags), unknown, missing)
        if self._checks_pairs and self._encoder.too_many_pairs(encoded):
            raise Odd
        return encoded


class _Numbers:
    """Numeric features: N columns scaled together."""

    def __init__(self) -> None:
        self._fields: list[NumericField] = []
        self._bins: list[tuple[int, NumericField, int]] = []
        self._groups: list[tuple[str, Any, dict[str, npt.NDArray[np.float64]]]] | None = None

    def add(self, one: NumericField, places: list[int]) -> None:
        self._bins.extend((len(self._fields), one, place) for place in places)
        self._fields.append(one)
        self._names = [one.feature.name for one in self._fields]
        self._getter = _getter(self._names)
        self._mean = np.array([one.mean for one in self._fields])
        self._groups = None

    def __len__(self) -> int:
        return len(self._fields)

    def entries(self) -> list[Entry]:
        return [Entry(one.feature.name, NUMBER, n) for n, one in enumerate(self._fields)]

    def encode(self, rows: Sequence[Row], ids: Ints, missing: Counts) -> Floats:
        """Scaled values (B, N); bins go into `ids`."""
        if not self._fields:
            return np.zeros((len(rows), 0), np.float32)
        flat = _flat(self._getter, self._names, rows)
        if not {int, float, type(None)}.issuperset(map(type, flat)):
            raise Odd
        try:
            raw = np.array(flat, np.float64).reshape(len(rows), -1)
        except OverflowError:
            raise Odd from None
        absent = np.isnan(raw)
        if absent.any():
            _count(missing, self._names, absent)
        return self.finish(raw, absent, ids)

    def finish(self, raw: npt.NDArray[np.float64], absent: npt.NDArray[np.bool_], ids: Ints) -> Floats:
        """Raw values (B, N) scaled, the mean where they are absent; bins go into `ids`. Raises Odd."""
        if not self._fields:
            return np.zeros((len(raw), 0), np.float32)
        values = np.where(absent, self._mean, raw) if absent.any() else raw
        scaled = self._scale(values)
        if not np.isfinite(scaled).all() or not np.isfinite(values).all():
            raise Odd
        for n, one, place in self._bins:
            ids[:, place] = one.bin_ids(raw[:, n])
        return scaled

    def _scale(self, values: npt.NDArray[np.float64]) -> Floats:
        if self._groups is None:
            self._groups = self._grouped()
        with np.errstate(over="ignore"):
            if len(self._groups) == 1:
                kind, _, state = self._groups[0]
                return scaled(kind, values, **state).astype(np.float32)
            result = np.empty(values.shape, np.float32)
            for kind, columns, state in self._groups:
                result[:, columns] = scaled(kind, values[:, columns], **state)
        return result

    def _grouped(self) -> list[tuple[str, Any, dict[str, npt.NDArray[np.float64]]]]:
        """(scaler, columns, its numbers of each column) of every scaler that occurs."""
        groups = []
        for kind in sorted({one.feature.scaler for one in self._fields}):
            columns = [n for n, one in enumerate(self._fields) if one.feature.scaler == kind]
            names = ("low", "high", "factor", "shift")
            state = {name: np.array([getattr(self._fields[n], name) for n in columns]) for name in names}
            groups.append((kind, columns, state))
        return groups


class _Categories:
    """Single categories that are found in the version's index: by text, or by number where all are integers."""

    def __init__(self) -> None:
        self.index: KeyIndex | None = None
        self._texts, self._integers = _Group(), _Group()

    def takes(self, one: CategoricalField) -> bool:
        column = one.vocabulary.column
        if column is None or one.vocabulary.buckets or one.vocabulary.boolean:
            return False
        return self.index is None or column.index is self.index

    def add(self, one: CategoricalField, place: int) -> None:
        column = one.vocabulary.column
        assert column is not None  # it was asked for
        self.index = column.index
        group = self._integers if column.integers else self._texts
        group.add(one, place, column.salt)

    def entries(self) -> list[Entry]:
        return [*self._texts.entries(TEXT), *self._integers.entries(INTEGER)]

    def encode(self, rows: Sequence[Row], ids: Ints, unknown: Counts, missing: Counts) -> None:
        if self.index is None:
            return
        groups: list[tuple[_Group, Keys, npt.NDArray[np.bool_]]] = []
        if self._texts.names:
            groups.append((self._texts, *text_block(self._texts.flat(rows))))
        if self._integers.names:
            groups.append((self._integers, *integer_block(self._integers.flat(rows))))
        keys = [(keys.reshape(len(rows), -1) ^ group.salts).ravel() for group, keys, _ in groups]
        found = self.index.find(keys[0] if len(keys) == 1 else np.concatenate(keys))
        start = 0
        for group, _, absent in groups:
            size = len(rows) * len(group.names)
            group.write(found[start : start + size].reshape(len(rows), -1), absent, ids, unknown, missing)
            start += size


class _Group:
    """Columns that are looked up in the same way."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._places: list[int] = []
        self._absent: list[int] = []
        self.salts: Keys = np.zeros(0, np.uint64)

    def add(self, one: CategoricalField, place: int, salt: int) -> None:
        self.names.append(one.feature.name)
        self._places.append(place)
        self._absent.append(missing_id(one.vocabulary.missing))
        self.salts = np.append(self.salts, np.uint64(salt))
        self._getter = _getter(self.names)
        consecutive = self._places == list(range(self._places[0], place + 1))
        self._where: Any = slice(self._places[0], place + 1) if consecutive else self._places

    def entries(self, kind: int) -> list[Entry]:
        found = zip(self.names, self._places, self.salts.tolist(), self._absent, strict=True)
        return [Entry(name, kind, place, salt, absent) for name, place, salt, absent in found]

    def flat(self, rows: Sequence[Row]) -> Values:
        return _flat(self._getter, self.names, rows)

    def write(self, found: Any, absent: npt.NDArray[np.bool_], ids: Ints, unknown: Counts, missing: Counts) -> None:
        """Ids of the values `found` (B, C), negative where they are not there."""
        lost = found < 0
        if lost.any():
            gone = found == EMPTY
            if absent.size:
                gone |= absent.reshape(found.shape)
            _count(missing, self.names, gone)
            _count(unknown, self.names, lost & ~gone)
            found = np.where(gone, self._absent, np.where(lost, UNKNOWN, found))
        ids[:, self._where] = found


def _getter(names: Sequence[str]) -> Callable[[Row], tuple[object, ...]]:
    if len(names) > 1:
        return itemgetter(*names)
    name = names[0]
    return lambda row: (row[name],)


def _flat(getter: Callable[[Row], tuple[object, ...]], names: Sequence[str], rows: Sequence[Row]) -> Values:
    """Values row by row, None where a row has none."""
    try:
        return list(chain.from_iterable(map(getter, rows)))
    except KeyError:
        return [row.get(name) for row in rows for name in names]


def _count(counts: Counts, names: Sequence[str], mask: npt.NDArray[np.bool_]) -> None:
    for name, count in zip(names, mask.sum(0).tolist(), strict=True):
        if count:
            counts[name] = counts.get(name, 0) + count
