"""The columns that have a role, beside the features: labels, units, item keys, times; items joined on the way.

Rows are read in blocks. In memory there is one block, all of it; into the cache go many, each checked and written, so
that what is in memory does not grow with the data, but for the distinct units and item keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.scoring.columns import Texts, number_column, seconds_column, text_column
from service.scoring.encoded import Ints
from service.scoring.files import read_json, write_json
from service.scoring.values import DataError
from training.cache import Growing, key_of, map_table, mapped, obtain
from training.config import DataConfig
from training.items import ItemTable
from training.reading import Rows
from training.showing import Bar
from training.source import Source

Floats64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to make of a source's rows."""

    data: DataConfig
    needs_times: bool  # the split goes by them
    items: ItemTable | None
    joined: tuple[str, ...]  # columns that come from the items

    @property
    def keyed(self) -> list[str]:
        """The columns whose values are numbered."""
        return [name for name in (self.data.unit, self.data.item) if name]


@dataclass(frozen=True, slots=True)
class Roles:
    """R rows with the items' columns joined, and their roles; `counts` are of what a user should know."""

    rows: Rows
    labels: npt.NDArray[np.float32]  # (R,) 0 or 1
    times: Floats64 | None  # (R,) epoch seconds, -inf where missing
    units: Ints | None  # (R,) a number for each unit, -1 where blank
    keys: Texts | None
    counts: Mapping[str, int]

    def notes(self, wanted: Wanted, item_path: Path | None) -> tuple[str, ...]:
        total, items = len(self.labels), wanted.items
        notes = [
            f"{missing} of {total} rows have no {name}; they are kept as missing"
            for name in wanted.keyed
            if (missing := self.counts[f"no {name}"])
        ]
        if absent := self.counts["absent"]:
            notes.append(f"{absent} rows name an item that {item_path} lacks; its features are missing there")
        if items is not None and items.dropped:
            notes.append(f"{items.dropped} rows of {item_path} have no {wanted.data.item} and are left out")
        return tuple(notes)


@dataclass(frozen=True, slots=True)
class _Block:
    table: pa.Table
    labels: npt.NDArray[np.float32]
    times: Floats64 | None
    keyed: dict[str, Texts]
    absent: int

    @classmethod
    def of(cls, table: pa.Table, wanted: Wanted) -> _Block:
        """Raises DataError with the row inside this block."""
        labels, times = _labels(table, wanted.data), _times(table, wanted)
        keyed = {name: text_column(name, table.column(name)) for name in wanted.keyed}
        absent = 0
        if wanted.items is not None and wanted.data.item:
            table, absent = wanted.items.join(table, keyed[wanted.data.item], list(wanted.joined))
        return cls(table, labels, times, keyed, absent)

    def counts(self) -> dict[str, int]:
        missing = {f"no {name}": int((texts.codes < 0).sum()) for name, texts in self.keyed.items()}
        return {"absent": self.absent, **missing}


def read_roles(source: Source, wanted: Wanted) -> Roles:
    """All rows into memory; raises DataFault."""
    rows = source.read()
    try:
        block = _Block.of(rows.table, wanted)
    except DataError as error:
        raise rows.fault(error) from None
    units = block.keyed.get(wanted.data.unit or "")
    return Roles(
        dataclasses.replace(rows, table=block.table),
        block.labels,
        block.times,
        None if units is None else units.codes,
        block.keyed.get(wanted.data.item or ""),
        block.counts(),
    )


def stored_roles(source: Source, wanted: Wanted, files: Mapping[str, str], cache: Path) -> Roles:
    """The same, streamed into `cache` where it is not there yet, and mapped; `files` are hashes. Raises DataFault."""
    data = dataclasses.asdict(wanted.data)
    key = key_of(files=dict(files), data=data, columns=source.columns, joined=wanted.joined, time=wanted.needs_times)
    folder, found = obtain(cache, key, lambda aside: _write(source, wanted, aside))
    rows = Rows(map_table(folder / "rows.arrow"), source.files, tuple(found["ends"]), source.format, bool(source.names))
    unit, item = wanted.data.unit, wanted.data.item
    return Roles(
        rows,
        mapped(folder / "labels", np.float32),
        mapped(folder / "times", np.float64) if wanted.data.timestamp else None,
        mapped(folder / "codes_0", np.int64) if unit else None,
        _map_texts(folder, wanted.keyed.index(item), found) if item else None,
        found["counts"],
    )


def _map_texts(folder: Path, number: int, found: Mapping[str, Any]) -> Texts:
    distinct = read_json(folder / f"distinct_{number}.json")
    return Texts(mapped(folder / f"codes_{number}", np.int64), distinct, bool(found["boolean"][number]))


def _write(source: Source, wanted: Wanted, folder: Path) -> dict[str, Any]:
    """Stream the source into files; what is needed beside them."""
    with ExitStack() as stack, Bar("reading", source.total()) as bar:
        files = _Files(folder, wanted, stack)
        counts: dict[str, int] = {}
        ends, done = [0] * len(source.files), 0
        for number, table in source.blocks():
            try:
                block = _Block.of(table, wanted)
            except DataError as error:
                raise source.fault(error, ends, number, done) from None
            files.append(block)
            counts = {name: count + counts.get(name, 0) for name, count in block.counts().items()}
            done += table.num_rows
            ends[number:] = [done] * (len(ends) - number)
            bar.add(table.num_rows)
    for n, coder in enumerate(files.coders):
        write_json(folder / f"distinct_{n}.json", coder.distinct if coder.name == wanted.data.item else [])
    return {"ends": ends, "counts": counts, "boolean": [coder.boolean for coder in files.coders]}


class _Files:
    """Where blocks are written; `stack` closes them."""

    def __init__(self, folder: Path, wanted: Wanted, stack: ExitStack) -> None:
        def growing(name: str, kind: npt.DTypeLike) -> Growing:
            return stack.enter_context(closing(Growing(folder / name, kind)))

        self.coders = [_Coder(name, growing(f"codes_{n}", np.int64)) for n, name in enumerate(wanted.keyed)]
        self._labels, self._times = growing("labels", np.float32), growing("times", np.float64)
        self._path, self._stack = folder / "rows.arrow", stack
        self._table: pa.RecordBatchFileWriter | None = None

    def append(self, block: _Block) -> None:
        if self._table is None:
            self._table = self._stack.enter_context(closing(pa.ipc.new_file(str(self._path), block.table.schema)))
        self._table.write_table(block.table)
        self._labels.append(block.labels)
        if block.times is not None:
            self._times.append(block.times)
        for coder in self.coders:
            coder.append(block.keyed[coder.name])


class _Coder:
    """Numbers the texts of one column over all blocks, in the order in which they are first met."""

    def __init__(self, name: str, file: Growing) -> None:
        self.name, self.file, self.boolean = name, file, False
        self._numbers: dict[str, int] = {}

    @property
    def distinct(self) -> list[str]:
        return list(self._numbers)

    def append(self, texts: Texts) -> None:
        numbers = self._numbers
        found = list(map(numbers.get, texts.distinct))
        if None in found:
            found = [numbers.setdefault(text, len(numbers)) for text in texts.distinct]
        self.boolean = self.boolean or texts.boolean
        self.file.append(np.array([*found, -1], np.int64)[texts.codes])


def _labels(table: pa.Table, data: DataConfig) -> npt.NDArray[np.float32]:
    column = table.column(data.label)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    try:
        labels = number_column(data.label, column)
    except DataError as error:
        raise DataError(data.label, f"the label must be 0 or 1: {error.reason}", error.row) from None
    bad = (labels != 0) & (labels != 1)  # NaN, a blank label, is bad too
    if bad.any():
        row = int(bad.argmax())
        found = column[row].as_py()
        shown = "nothing" if found in (None, "") else str(found)[:40]
        raise DataError(data.label, f"the label must be 0 or 1, found {shown}", row)
    return labels.astype(np.float32)


def _times(table: pa.Table, wanted: Wanted) -> Floats64 | None:
    name = wanted.data.timestamp
    if name is None:
        return None
    seconds, missing = seconds_column(name, table.column(name))
    if missing.any() and wanted.needs_times:
        raise DataError(name, "the time is missing, and the split goes by it", int(missing.argmax()))
    return np.where(missing, -np.inf, seconds.astype(np.float64))
