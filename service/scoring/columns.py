"""Arrow columns read by the same rules as request values: numbers, category texts, bags of them, times."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.scoring.encoded import Ints
from service.scoring.values import MAX_BAG, DataError, ValueFault, in_range, iso_seconds

Doubles = npt.NDArray[np.float64]
Column: TypeAlias = pa.ChunkedArray

# Separates the categories of a multi feature in a text cell.
SEPARATOR = "|"


@dataclass(frozen=True, slots=True)
class Texts:
    """B category texts as codes into `distinct`, -1 where missing; `boolean` where the column held booleans."""

    codes: Ints
    distinct: list[str]
    boolean: bool


@dataclass(frozen=True, slots=True)
class TextBags:
    """Ragged category texts: row b owns `codes[offsets[b]:offsets[b + 1]]`; missing texts are already left out."""

    codes: Ints
    offsets: Ints
    distinct: list[str]
    boolean: bool


def number_column(name: str, column: Column) -> Doubles:
    """Finite float64 values, NaN where missing."""
    kind = column.type
    if is_text(kind):
        column = _parsed_numbers(name, column)
    elif pa.types.is_boolean(kind) or not (_is_number(kind) or pa.types.is_null(kind)):
        raise DataError(name, f"a number is needed, the column holds {kind}")
    missing = column.is_null().to_numpy()
    values = pc.fill_null(column.cast(pa.float64(), safe=False), 0.0).to_numpy().copy()
    bad = ~np.isfinite(values)
    if bad.any():
        raise DataError(name, "the number is not finite", int(bad.argmax()))
    values[missing] = np.nan
    return np.asarray(values, np.float64)


def text_column(name: str, column: Column) -> Texts:
    """Category texts; an empty text is missing."""
    boolean = pa.types.is_boolean(column.type)
    if pa.types.is_integer(column.type):  # as texts the distinct ones alone are written
        codes, distinct = _coded(column)
        return Texts(codes, distinct.cast(pa.string()).to_pylist(), boolean)
    return Texts(*_codes(_as_text(name, column)), boolean)


def bag_column(name: str, column: Column) -> TextBags:
    """Category lists, from a list column or from texts split at `SEPARATOR`."""
    if is_text(column.type) or pa.types.is_dictionary(column.type):
        column = pc.split_pattern(_as_text(name, column), SEPARATOR)
    kind = column.type
    if pa.types.is_null(kind):
        column = column.cast(pa.list_(pa.string()))
    elif not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise DataError(name, f"lists of categories are needed, the column holds {kind}")
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    if (lengths > MAX_BAG).any():
        raise DataError(name, f"a list holds more than {MAX_BAG} categories", int((lengths > MAX_BAG).argmax()))
    flat = pc.list_flatten(column)
    flat = flat if isinstance(flat, pa.ChunkedArray) else pa.chunked_array([flat])
    boolean = pa.types.is_boolean(flat.type)
    codes, distinct = _codes(_as_text(name, flat))
    rows = np.repeat(np.arange(len(lengths)), lengths)[codes >= 0]
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=len(lengths)), out=offsets[1:])
    return TextBags(codes[codes >= 0], offsets, distinct, boolean)


def seconds_column(name: str, column: Column) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Whole epoch seconds (0 where missing) and where they are missing; naive stamps are UTC."""
    kind = column.type
    if is_text(kind) or pa.types.is_dictionary(kind):
        return _text_seconds(name, column)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        unit = kind.unit if pa.types.is_timestamp(kind) else "ms"
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
        ticks = column.cast(pa.timestamp(unit, getattr(kind, "tz", None))).cast(pa.int64())
        missing = ticks.is_null().to_numpy()
        seconds = np.floor_divide(pc.fill_null(ticks, 0).to_numpy(), per_second)
    else:
        values = number_column(name, column)
        missing = np.isnan(values)
        seconds = np.floor(np.where(missing, 0.0, values))
    for extreme in (seconds.argmin(), seconds.argmax()) if len(seconds) else ():
        try:
            in_range(float(seconds[extreme]))
        except ValueFault as fault:
            raise DataError(name, fault.msg, int(extreme)) from None
    return seconds.astype(np.int64), missing


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _parsed_numbers(name: str, column: Column) -> Column:
    texts = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        # Found again one by one, only to name the row.
        for row, text in enumerate(texts.to_pylist()):
            try:
                pa.scalar(text, pa.string()).cast(pa.float64())
            except pa.ArrowInvalid:
                raise DataError(name, f"'{text[:40]}' is no number", row) from None
        raise


def _as_text(name: str, column: Column) -> Column:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _as_text(name, column.cast(kind.value_type))
    if is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column.cast(pa.large_string())
    if pa.types.is_decimal(kind) and kind.scale == 0:
        return column.cast(pa.large_string())
    if pa.types.is_floating(kind):
        return _whole_floats(name, column).cast(pa.large_string())
    raise DataError(name, f"categories must be texts or integers, the column holds {kind}")


def _whole_floats(name: str, column: Column) -> Column:
    """Integers that a missing value turned into floats; anything else is refused, not rounded."""
    column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    values = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy()
    bad = (values != np.floor(values)) | (np.abs(values) > 2.0**53)
    if bad.any():
        raise DataError(name, "a category must be a text or an integer, not a fraction", int(bad.argmax()))
    return column.cast(pa.int64())


def _coded(column: Column) -> tuple[Ints, pa.Array]:
    """Codes (B,), -1 for null, into the distinct values."""
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary


def _codes(texts: Column) -> tuple[Ints, list[str]]:
    codes, values = _coded(texts)
    distinct = values.to_pylist()
    if "" in distinct:
        codes[codes == distinct.index("")] = -1
    return codes, distinct


def _text_seconds(name: str, column: Column) -> tuple[Ints, npt.NDArray[np.bool_]]:
    codes, distinct = _codes(_as_text(name, column))
    seconds = np.zeros(len(distinct) + 1, np.int64)
    for code, text in enumerate(distinct):
        if text:
            try:
                seconds[code] = _seconds_of(text)
            except ValueFault as fault:
                raise DataError(name, fault.msg, int((codes == code).argmax())) from None
    return seconds[codes], codes < 0


def _seconds_of(value: str | float) -> int:
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value) if "_" not in value else value
        if isinstance(value, str):
            return iso_seconds(value)
    if not np.isfinite(value):
        raise ValueFault("the time is not finite", "finite_number")
    return in_range(value)
