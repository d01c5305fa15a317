"""What a request to /predict asks for: both forms checked part by part, every fault kept.

Where a part is wrong, something harmless takes its place in `request`, so that the rest can still be checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.errors import MAX_FAULTS, TooManyRows
from service.feature_names import shorten
from service.names import RULE
from service.scorer import Request, row_count
from service.scoring.files import is_version_name
from service.scoring.predictor import RankRequest, RowRequest
from service.scoring.schema import nearest
from service.scoring.values import Fault
from service.traffic import Assignment, unit_text

RANK_KEYS = ("user", "context", "candidates", "top_k")
MAX_EXPLAINED = 20
COMMON_KEYS = ("unit_id", "version", "explain")
KEYS = frozenset({"instances", *RANK_KEYS, *COMMON_KEYS})
_AN_ITEM = "a candidate is an item id (a string or an integer) or an object"

_ABSENT = object()
_ITEM_TYPES = frozenset((str, int, dict))


@dataclass(slots=True)
class Asked:
    """A parsed request. `request` is None where no form can be made out; without faults all of it is right.

    `unit` counts only if `has_unit`; else it is the unit feature's, see `find_unit`. `assigned` is where a split has
    put it already.
    """

    request: Request | None = None
    has_unit: bool = False
    unit: str | None = None
    version: str | None = None
    top_k: int | None = None
    assigned: Assignment | None = None
    faults: list[Fault] = field(default_factory=list)

    def fault(self, loc: tuple[str | int, ...], msg: str, kind: str) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(Fault(loc, msg, kind))

    def find_unit(self, keys: Iterable[str]) -> str | None:
        """The unit: as given, else the first of the named features that `user`, or the first instance, holds."""
        if self.has_unit or self.request is None:
            return self.unit
        loc: tuple[str | int, ...] = ("user",)
        holder: Mapping[str, object]
        if isinstance(self.request, RankRequest):
            holder = self.request.user
        else:
            loc, holder = ("instances", 0), self.request.instances[0]
        for key in keys:
            if key in holder:
                try:
                    return unit_text(holder[key])
                except TypeError as error:
                    self.fault((*loc, key), str(error), "unit_type")
        return None


def parse(body: object, headers: Mapping[bytes, bytes], *, max_rows: int) -> Asked:
    """Check a decoded body and the headers that stand for parts of it. Raises TooManyRows."""
    asked = Asked()
    if not isinstance(body, dict):
        asked.fault((), "the body must be a JSON object", "dict_type")
        return asked
    if not body.keys() <= KEYS:
        for key in [key for key in body if key not in KEYS][:MAX_FAULTS]:
            shown = shorten(key)
            asked.fault((shown,), f"no such field{nearest(shown, KEYS)}", "extra_forbidden")
    _parse_common(asked, body, headers)
    explain = body.get("explain") is True
    ranks = [key for key in RANK_KEYS if body.get(key) is not None]
    if "instances" in body:
        for key in ranks:
            asked.fault((key,), "belongs to the ranking form and cannot stand beside 'instances'", "both_forms")
        asked.request = _rows(asked, body["instances"], max_rows, explain)
    elif "user" in body or "candidates" in body:
        asked.request = _ranking(asked, body, max_rows, explain)
    else:
        asked.fault(("instances",), "either 'instances', or 'user' and 'candidates' are needed", "missing")
    if explain and asked.request is not None and row_count(asked.request) > MAX_EXPLAINED:
        asked.fault(("explain",), f"at most {MAX_EXPLAINED} rows are explained at once", "too_long")
    return asked


def take_timeout(asked: Asked, headers: Mapping[bytes, bytes], default: float | None) -> float | None:
    """Seconds that the whole answer may take, from the header in milliseconds; `default` where it names none."""
    header = headers.get(b"x-request-timeout-ms")
    if header is None:
        return default
    try:
        milliseconds = float(header)
    except ValueError:
        milliseconds = -1.0
    if not 0 <= milliseconds < math.inf:
        asked.fault(("header", "x-request-timeout-ms"), "must be a number of milliseconds, at least 0", "timeout")
    return milliseconds / 1e3


def _parse_common(asked: Asked, body: Mapping[str, object], headers: Mapping[bytes, bytes]) -> None:
    unit = body.get("unit_id")
    if unit is not None:
        _take_unit(asked, ("unit_id",), unit)
    elif b"x-unit-id" in headers:
        _take_unit(asked, ("header", "x-unit-id"), _text(headers[b"x-unit-id"]))
    version = body.get("version")
    if version is not None:
        _take_version(asked, ("version",), version)
    elif b"x-model-version" in headers:
        _take_version(asked, ("header", "x-model-version"), _text(headers[b"x-model-version"]))
    explain = body.get("explain")
    if explain is not None and not isinstance(explain, bool):
        asked.fault(("explain",), "must be true or false", "bool_type")


def _text(header: bytes) -> str | None:
    """A header's text: UTF-8, so that a unit's hash is that of the same text in a body; None where it is not."""
    try:
        return header.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _take_unit(asked: Asked, loc: tuple[str | int, ...], value: object) -> None:
    asked.has_unit = True
    if value is None:
        asked.fault(loc, "must be UTF-8", "unit_type")
        return
    try:
        asked.unit = unit_text(value)
    except TypeError as error:
        asked.fault(loc, str(error), "unit_type")


def _take_version(asked: Asked, loc: tuple[str | int, ...], value: object) -> None:
    if isinstance(value, str) and is_version_name(value):
        asked.version = value
    else:
        asked.fault(loc, f"a version's name is {RULE}", "version_name")


def _rows(asked: Asked, instances: object, max_rows: int, explain: bool) -> Request | None:
    rows = _list(asked, "instances", instances, max_rows)
    if rows is None:
        return None
    if set(map(type, rows)) != {dict}:
        wrong = [n for n, row in enumerate(rows) if type(row) is not dict]
        for n in wrong[:MAX_FAULTS]:
            asked.fault(("instances", n), "an instance must be an object of features", "dict_type")
        rows = [row if type(row) is dict else {} for row in rows]
    return RowRequest(rows, explain)


def _ranking(asked: Asked, body: Mapping[str, object], max_rows: int, explain: bool) -> Request | None:
    user = _object(asked, "user", body.get("user", _ABSENT))
    context = _object(asked, "context", {} if body.get("context") is None else body["context"])
    _take_top_k(asked, body.get("top_k"))
    candidates = _list(asked, "candidates", body.get("candidates", _ABSENT), max_rows)
    if candidates is None:
        return None
    if not _ITEM_TYPES.issuperset(map(type, candidates)):
        wrong = [n for n, item in enumerate(candidates) if type(item) not in _ITEM_TYPES]
        for n in wrong[:MAX_FAULTS]:
            asked.fault(("candidates", n), _AN_ITEM, "item_type")
        candidates = [item if type(item) in _ITEM_TYPES else "" for item in candidates]
    return RankRequest(user, candidates, context, explain)


def _take_top_k(asked: Asked, top_k: object) -> None:
    if top_k is None:
        return
    if isinstance(top_k, bool) or not isinstance(top_k, int):
        asked.fault(("top_k",), "must be an integer", "int_type")
    elif top_k < 1:
        asked.fault(("top_k",), "must be at least 1", "greater_than_equal")
    else:
        asked.top_k = top_k


def _object(asked: Asked, key: str, value: object) -> dict[str, object]:
    if isinstance(value, dict):
        return value
    if value is _ABSENT:
        asked.fault((key,), f"the ranking form needs '{key}'", "missing")
    else:
        asked.fault((key,), "must be an object of features", "dict_type")
    return {}


def _list(asked: Asked, key: str, value: object, max_rows: int) -> list[Any] | None:
    """The list under `key`, None where there is none to go on with."""
    if value is _ABSENT:
        asked.fault((key,), f"the ranking form needs '{key}'", "missing")
    elif not isinstance(value, list):
        asked.fault((key,), "must be a list", "list_type")
    elif not value:
        asked.fault((key,), "must not be empty", "too_short")
    elif len(value) > max_rows:
        raise TooManyRows(f"{len(value)} rows are more than the {max_rows} that are allowed")
    else:
        return value
    return None
