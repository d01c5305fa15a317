"""What a raw value may be: the rules of request values and of Arrow columns, and the faults they end in.

A fault of a request names its place as a FastAPI `loc`; a fault of a column names the column, the row and the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

T = TypeVar("T")

# Longest list of a multi feature, and most pairs that one row's cross may expand to: both bound a request's memory.
MAX_BAG = 1024
MAX_PAIRS = 4096

# Epoch seconds of 1800-01-01 and 2200-01-01; what lies beyond is milliseconds, or a mistake.
_EARLIEST, _LATEST = -5_364_662_400, 7_258_118_400


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a request: where, in words, and a stable type."""

    loc: tuple[str | int, ...]
    msg: str
    type: str


class EncodeError(ValueError):
    """Request values that cannot be encoded; `faults` names each."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, fault.loc))}: {fault.msg}" for fault in faults[:3]))
        self.faults = list(faults)


class DataError(ValueError):
    """A column that cannot be encoded: `column`, the 0-based `row` where there is one, and the reason."""

    def __init__(self, column: str, reason: str, row: int | None = None) -> None:
        place = f"column '{column}'" + (f", row {row + 1}" if row is not None else "")
        super().__init__(f"{place}: {reason}")
        self.column, self.reason, self.row = column, reason, row


class ValueFault(ValueError):
    """One value that breaks a rule; the caller knows where it stands."""

    def __init__(self, msg: str, type_: str) -> None:
        super().__init__(msg)
        self.msg, self.type = msg, type_


@dataclass(slots=True)
class FaultList:
    """Faults of a block of rows as (row, feature, fault); the caller turns rows into places of the body."""

    found: list[tuple[int, str, ValueFault]] = field(default_factory=list)

    def add(self, row: int, feature: str, fault: ValueFault) -> None:
        self.found.append((row, feature, fault))

    def guard(self, row: int, feature: str, read: Callable[[object], T], value: object) -> T:
        """`read(value)`; a fault is noted and the value read as missing."""
        try:
            return read(value)
        except ValueFault as fault:
            self.add(row, feature, fault)
            return read(None)


def category_text(value: object, *, boolean: bool = False) -> str | None:
    """The category's text, None where missing. Strings and integers; booleans only where training saw booleans."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        if boolean:
            return "true" if value else "false"
        raise ValueFault("a category must be a string or an integer, not a boolean", "category_type")
    if isinstance(value, int):
        if value.bit_length() > 4096:
            raise ValueFault("an integer of more than 4096 bits is no category", "category_type")
        return str(value)
    raise ValueFault("a category must be a string or an integer", "category_type")


def number(value: object) -> float:
    """A finite number, NaN where missing (None)."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueFault("a number is needed", "number_type")
    try:
        read = float(value)
    except OverflowError:
        read = math.inf
    if not math.isfinite(read):
        raise ValueFault("the number must be finite", "finite_number")
    return read


def categories(value: object, *, boolean: bool = False) -> list[str]:
    """The texts of a list of categories; null, an empty list and empty texts are missing."""
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise ValueFault("a list of categories is needed", "list_type")
    if len(value) > MAX_BAG:
        raise ValueFault(f"a list of at most {MAX_BAG} categories is allowed", "too_long")
    texts = (category_text(one, boolean=boolean) for one in value)
    return [text for text in texts if text is not None]


def epoch_seconds(value: object) -> int | None:
    """Whole epoch seconds of a number or an ISO 8601 text (naive means UTC), None where missing."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return iso_seconds(value)
    return in_range(number_of_seconds(value))


def number_of_seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueFault("a time must be epoch seconds or ISO 8601 text", "datetime_type")
    return number(value)


def iso_seconds(text: str) -> int:
    """Whole epoch seconds of an ISO 8601 text; raises ValueFault."""
    # The compact forms (20240131) would be ambiguous with epoch seconds in a file of text.
    if len(text) >= 8 and text[4] == "-":
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            pass
        else:
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            return in_range(moment.timestamp())
    raise ValueFault("the text is no ISO 8601 time", "datetime_parsing")


def in_range(seconds: float) -> int:
    if seconds > _LATEST:
        msg = "the time lies beyond the year 2200; are these milliseconds? epoch seconds are needed"
        raise ValueFault(msg, "datetime_range")
    if seconds < _EARLIEST:
        raise ValueFault("the time lies before the year 1800", "datetime_range")
    return math.floor(seconds)
