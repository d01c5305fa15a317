"""Item tables laid over each other: raw columns by item key, before any encoding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.scoring.columns import Column, bag_column, number_column, seconds_column, text_column
from service.scoring.encoded import Ints
from service.scoring.schema import FeatureSchema
from service.scoring.values import DataError

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Difference:
    """How many items one table has that another lacks, lacks, or has with other values."""

    added: int
    changed: int
    removed: int


def lay_over(base: pa.Table, items: pa.Table, schema: FeatureSchema) -> pa.Table:
    """`items` over `base`: an item's row replaces the old one, where there is one, in every column that `items` has.

    A column that `items` lacks keeps the old values and is missing in new items; one that `base` lacks is missing in
    the items that `items` does not name. The rows of `base` keep their places. DataError where a column's two types
    do not go together.
    """
    rows, given = _rows(base, schema), _rows(items, schema)
    places = np.array([rows.get(key, -1) for key in given], np.int64)
    fresh = np.flatnonzero(places < 0)
    total = base.num_rows + len(fresh)
    below, above = np.full(total, -1, np.int64), np.full(total, -1, np.int64)
    below[: base.num_rows] = np.arange(base.num_rows)
    above[places[places >= 0]] = np.flatnonzero(places >= 0)
    above[base.num_rows :] = fresh
    columns: dict[str, Column] = {}
    for name in dict.fromkeys([*base.column_names, *items.column_names]):
        if name not in items.column_names:
            columns[name] = _take(base.column(name), below)
        elif name not in base.column_names:
            columns[name] = _take(items.column(name), above)
        else:
            old, new = _alike(name, base.column(name), items.column(name), schema)
            both = pa.chunked_array([*old.chunks, *new.chunks], new.type)
            columns[name] = _take(both, np.where(above >= 0, base.num_rows + above, below))
    return pa.table(columns)


def difference(old: pa.Table, new: pa.Table, schema: FeatureSchema) -> Difference:
    """What `new` is beside `old`, item by item."""
    before, after = _rows(old, schema), _rows(new, schema)
    kept = [key for key in after if key in before]
    here, there = (np.array([rows[key] for key in kept], np.int64) for rows in (before, after))
    changed = np.zeros(len(kept), bool)
    for name in {*old.column_names, *new.column_names} - {schema.item}:
        left = _take(old.column(name), here) if name in old.column_names else None
        right = _take(new.column(name), there) if name in new.column_names else None
        changed |= _unlike(name, left, right, schema)
    return Difference(len(after) - len(kept), int(changed.sum()), len(before) - len(kept))


def _rows(table: pa.Table, schema: FeatureSchema) -> dict[str, int]:
    """The row of each item, whose keys are known to be there once each."""
    assert schema.item is not None  # the caller has an item key
    texts = text_column(schema.item, table.column(schema.item))
    return {texts.distinct[code]: row for row, code in enumerate(texts.codes.tolist())}


def _take(column: Column, rows: Ints) -> Column:
    """Those rows, null where the row is -1."""
    return column.take(pa.array(rows, mask=rows < 0))


def _unlike(name: str, left: Column | None, right: Column | None, schema: FeatureSchema) -> Mask:
    """Where two columns of the same length differ; an absent column holds nulls."""
    if left is None or right is None:
        some = left if right is None else right
        assert some is not None  # one of the tables has the column
        return np.asarray(some.is_valid().to_numpy(), bool)
    left, right = _alike(name, left, right, schema)
    try:
        same = pc.or_(pc.fill_null(pc.equal(left, right), False), pc.and_(left.is_null(), right.is_null()))
        return ~np.asarray(same.to_numpy(), bool)
    except (pa.ArrowNotImplementedError, TypeError):  # lists have no comparison of their own
        return np.array([a != b for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)], bool)


def _alike(name: str, old: Column, new: Column, schema: FeatureSchema) -> tuple[Column, Column]:
    """Both columns with one type: where theirs differ, as the encoder reads them."""
    if old.type == new.type:
        return old, new
    kinds = {feature.name: feature.kind for feature in schema.features}
    read = _READERS.get("categorical" if name == schema.item else kinds.get(name, ""))
    if read is not None:
        return read(name, old), read(name, new)
    try:
        both = pa.concat_tables([pa.table({name: old}), pa.table({name: new})], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise DataError(name, f"it holds {new.type} here and {old.type} in the catalog") from None
    column = both.column(name)
    return column.slice(0, len(old)), column.slice(len(old))


def _numbers(name: str, column: Column) -> Column:
    values = number_column(name, column)
    return pa.chunked_array([pa.array(values, mask=np.isnan(values))])


def _texts(name: str, column: Column) -> Column:
    texts = text_column(name, column)
    return _take(pa.chunked_array([pa.array(texts.distinct, pa.string())]), texts.codes)


def _bags(name: str, column: Column) -> Column:
    bags = bag_column(name, column)
    values = pa.array(bags.distinct, pa.string()).take(pa.array(bags.codes))
    return pa.chunked_array([pa.LargeListArray.from_arrays(pa.array(bags.offsets), values)])


def _seconds(name: str, column: Column) -> Column:
    seconds, missing = seconds_column(name, column)
    return pa.chunked_array([pa.array(seconds, mask=missing)])


_READERS: dict[str, Callable[[str, Column], Column]] = {
    "numeric": _numbers,
    "categorical": _texts,
    "multi": _bags,
    "datetime": _seconds,
}
