"""The item table: joined to the rows by the item key, and kept raw as the version's catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.scoring.columns import Texts, bag_column, number_column, seconds_column, text_column
from service.scoring.encoded import Ints
from service.scoring.schema import FeatureSchema
from service.scoring.values import DataError
from training.errors import DataFault
from training.reading import format_of, read_rows

_CHECKS: dict[str, Callable[[str, pa.ChunkedArray], object]] = {
    "numeric": number_column,
    "categorical": text_column,
    "multi": bag_column,
    "datetime": seconds_column,
}


@dataclass(frozen=True, slots=True)
class ItemTable:
    """Raw items, one row each; `rows` finds a row by the item key's text."""

    table: pa.Table
    rows: dict[str, int]
    dropped: int  # rows without a key

    def join(self, events: pa.Table, keys: Texts, names: list[str]) -> tuple[pa.Table, int]:
        """`events` with the columns `names` of each row's item, and how many rows name an item that is not here."""
        found = np.array([self.rows.get(text, -1) for text in keys.distinct] + [-1], np.int64)[keys.codes]
        index = pa.array(found, mask=found < 0)
        for name in names:
            events = events.append_column(name, self.table.column(name).take(index))
        return events, int(((found < 0) & (keys.codes >= 0)).sum())


def read_items(path: Path, key: str, schema: FeatureSchema) -> ItemTable:
    """Read the item table; raises DataFault where the key is absent, an item stands there twice or a value is bad."""
    if not path.is_file():
        raise DataFault(f"{path}: no such item table ([data] items)")
    rows = read_rows([path], format_of(path), None)
    if key not in rows.table.column_names:
        raise DataFault(f"{path}: column '{key}', the item key, is missing")
    try:
        keys = text_column(key, rows.table.column(key))
        for feature in schema.of_side("item"):  # here, so that a bad value is placed in this file
            if feature.name in rows.table.column_names:
                _CHECKS[feature.kind](feature.name, rows.table.column(feature.name))
    except DataError as error:
        raise rows.fault(error) from None
    numbers: dict[str, int] = {}
    for row, code in enumerate(keys.codes.tolist()):
        if code >= 0 and numbers.setdefault(text := keys.distinct[code], row) != row:
            raise DataFault(
                f"{rows.place(row)}: item '{text}' stands in the table twice, first at {rows.place(numbers[text])}"
            )
    keep = np.flatnonzero(keys.codes >= 0)
    if not len(keep):
        raise DataFault(f"{path}: column '{key}', the item key, names no item")
    if len(keep) == len(keys.codes):
        return ItemTable(rows.table, numbers, 0)
    places = {row: place for place, row in enumerate(keep.tolist())}
    return ItemTable(
        rows.table.take(pa.array(keep)),
        {text: places[row] for text, row in numbers.items()},
        len(keys.codes) - len(keep),
    )


def newest_rows(
    table: pa.Table, keys: Texts, times: npt.NDArray[np.float64] | None, train: Ints, schema: FeatureSchema
) -> pa.Table:
    """A catalog from the training part: the item features of each item's newest row (the last one among equals)."""
    key = schema.item
    assert key is not None  # the caller has an item key, or no catalog
    known = train[keys.codes[train] >= 0]
    order = known if times is None else known[np.argsort(times[known], kind="stable")]
    last: dict[int, int] = dict(zip(keys.codes[order].tolist(), order.tolist(), strict=True))
    names = [key] + [feature.name for feature in schema.of_side("item") if feature.name != key]
    return table.select(names).take(pa.array(last.values(), pa.int64()))
