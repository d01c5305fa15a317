"""The checks of a feature schema's values, each ending in one plain sentence."""

from __future__ import annotations

import difflib
import itertools
import math
import zoneinfo
from collections.abc import Iterable, Mapping
from typing import Any

PARTS = ("hour", "weekday", "month")
BIN_RULES = ("quantile", "target")
MOST_BINS = 1024
_MAX_TABLE = 1 << 31


class SchemaError(ValueError):
    """A feature schema that cannot be: one plain sentence that says what, where and the nearest known name."""


def nearest(name: str, known: Iterable[str]) -> str:
    """' (did you mean 'x'?)' for the known name that looks most like `name`, or an empty string."""
    close = difflib.get_close_matches(name[:100], list(known), n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""


def require_mapping(table: object, where: str) -> Mapping[str, Any]:
    if not isinstance(table, Mapping):
        raise SchemaError(f"{where}: a table is needed")
    return table


def choice(table: Mapping[str, Any], key: str, known: tuple[str, ...], where: str) -> str:
    value = table.get(key)
    if isinstance(value, str) and value in known:
        return value
    shown = f"'{value}'" if isinstance(value, str) else "missing" if value is None else "not a text"
    hint = nearest(value, known) if isinstance(value, str) else ""
    raise SchemaError(f"{where}: '{key}' is {shown}; it must be one of {', '.join(known)}{hint}")


def integer(value: object, least: int, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _MAX_TABLE:
        raise SchemaError(f"{where} must be an integer of at least {least}")
    return value


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float holds
        return False


def bin_rule(value: str, where: str) -> dict[str, str]:
    """A rule by which training finds the edges: a name of `BIN_RULES` and at most how many bins."""
    name, _, count = value.partition(":")
    if name not in BIN_RULES:
        raise SchemaError(
            f'{where}: bins = "{value[:40]}" must begin with {" or ".join(BIN_RULES)}{nearest(name, BIN_RULES)}'
        )
    if not (count.isascii() and count.isdigit() and len(count) < 6 and 2 <= int(count) <= MOST_BINS):
        raise SchemaError(f'{where}: bins = "{value[:40]}" must end in how many, as in "{name}:16" (2 to {MOST_BINS})')
    return {"rule": value}


def edges(value: object, where: str) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise SchemaError(f"{where}: 'bins' must be a list of numbers")
    for edge in value:
        if isinstance(edge, bool) or not isinstance(edge, int | float) or not _is_finite(edge):
            raise SchemaError(f"{where}: 'bins' must hold finite numbers")
    if any(a >= b for a, b in itertools.pairwise(value)):
        raise SchemaError(f"{where}: 'bins' must rise strictly")
    return tuple(float(edge) for edge in value)


def parts(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise SchemaError(f"{where}: 'parts' must be a list of {', '.join(PARTS)}")
    for part in value:
        if part not in PARTS:
            raise SchemaError(f"{where}: unknown part '{part}'{nearest(str(part), PARTS)}")
    if twice := first_repeated(list(value)):
        raise SchemaError(f"{where}: part '{twice}' is named twice")
    return tuple(value)


def zone(value: object, where: str) -> str:
    if isinstance(value, str):
        try:
            zoneinfo.ZoneInfo(value)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            pass
        else:
            return value
    raise SchemaError(f"{where}: tz '{value}' is not a known IANA zone")


def first_repeated(names: list[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
