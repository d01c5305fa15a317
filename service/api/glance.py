"""The usual request, told by its outline: what is long in it is read by the version that will answer it.

Whatever is not usual gives None, and is then parsed and judged part by part (asking.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from service.api.asking import Asked
from service.api.body import Headers, decode
from service.scoring.predictor import Predictor, RankRequest, RowRequest
from service.scoring.reader import LazyObject
from service.traffic import Split, unit_text

_NOTHING = msgspec.Raw()


class _Outline(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Either form; what is long in it is left as JSON."""

    unit_id: str | int | None = None
    instances: msgspec.Raw = _NOTHING
    user: msgspec.Raw = _NOTHING
    context: msgspec.Raw = _NOTHING
    candidates: msgspec.Raw = _NOTHING
    top_k: int | None = None


_DECODER = msgspec.json.Decoder(_Outline)
_OBJECT = msgspec.json.Decoder(dict[str, Any])


def glance(
    body: bytes | bytearray,
    headers: Headers,
    split: Split,
    predictor: Callable[[str], Predictor | None],
    unit_keys: Callable[[], Iterable[str]],
    max_rows: int,
) -> Asked | None:
    """What is asked for, its unit assigned and its rows or candidates read; None where it takes more than a glance.

    `unit_keys` are the names under which a user may say which unit it is.
    """
    if b"x-model-version" in headers:
        return None
    try:
        outline = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    unit = _unit(outline, headers, unit_keys)
    if unit is None:
        return None
    assigned = split.assign(unit)
    version = predictor(assigned.version)
    if version is None:
        return None
    rows = outline.user is _NOTHING
    request = _rows(outline, version, max_rows) if rows else _ranking(outline, version, max_rows)
    return None if request is None else Asked(request, True, unit, None, outline.top_k, assigned)


def _unit(outline: _Outline, headers: Headers, unit_keys: Callable[[], Iterable[str]]) -> str | None:
    if outline.unit_id is not None:
        return unit_text(outline.unit_id)
    if outline.user is _NOTHING or b"x-unit-id" in headers:
        return None
    user = _object(outline.user)
    if user is None:
        return None
    value = next((user[key] for key in unit_keys() if key in user), None)
    return unit_text(value) if type(value) in (str, int) else None


def _rows(outline: _Outline, version: Predictor, max_rows: int) -> RowRequest | None:
    ranks = outline.candidates is not _NOTHING or outline.context is not _NOTHING or outline.top_k is not None
    if ranks or outline.instances is _NOTHING:
        return None
    return version.read_rows(outline.instances, max_rows, lambda: _decoded(outline.instances))


def _ranking(outline: _Outline, version: Predictor, max_rows: int) -> RankRequest | None:
    if outline.instances is not _NOTHING or (outline.top_k is not None and outline.top_k < 1):
        return None
    raw = outline.candidates
    read = version.read_candidates(raw, max_rows, lambda: _decoded(raw))
    if read is None:
        return None
    has_context = outline.context is not _NOTHING and bytes(outline.context) != b"null"
    candidates, keys = read
    row = version.read_user(outline.user, outline.context if has_context else b"{}")
    if row is not None:
        user = LazyObject(lambda: _decoded(outline.user))
        context = LazyObject(lambda: _decoded(outline.context)) if has_context else {}
        return RankRequest(user, candidates, context, keys=keys, read=row)
    found, beside = _object(outline.user), _object(outline.context) if has_context else {}
    return None if found is None or beside is None else RankRequest(found, candidates, beside, keys=keys)


def _object(raw: msgspec.Raw) -> dict[str, Any] | None:
    try:
        return _OBJECT.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def _decoded(raw: msgspec.Raw) -> Any:
    return decode(bytes(raw))
