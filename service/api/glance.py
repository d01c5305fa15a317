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
from service.traffic import Split, unit_text

_NOTHING = msgspec.Raw()


class _Outline(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Either form; rows and candidates are left as JSON."""

    unit_id: str | int | None = None
    instances: msgspec.Raw = _NOTHING
    user: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    candidates: msgspec.Raw = _NOTHING
    top_k: int | None = None


_DECODER = msgspec.json.Decoder(_Outline)


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
    request = _rows(outline, version, max_rows) if outline.user is None else _ranking(outline, version, max_rows)
    return None if request is None else Asked(request, True, unit, None, outline.top_k, assigned)


def _unit(outline: _Outline, headers: Headers, unit_keys: Callable[[], Iterable[str]]) -> str | None:
    if outline.unit_id is not None:
        return unit_text(outline.unit_id)
    if outline.user is None or b"x-unit-id" in headers:
        return None
    value = next((outline.user[key] for key in unit_keys() if key in outline.user), None)
    return unit_text(value) if type(value) in (str, int) else None


def _rows(outline: _Outline, version: Predictor, max_rows: int) -> RowRequest | None:
    ranks = outline.candidates is not _NOTHING or outline.context is not None or outline.top_k is not None
    if ranks or outline.instances is _NOTHING:
        return None
    return version.read_rows(outline.instances, max_rows, lambda: _decoded(outline.instances))


def _ranking(outline: _Outline, version: Predictor, max_rows: int) -> RankRequest | None:
    if outline.instances is not _NOTHING or (outline.top_k is not None and outline.top_k < 1):
        return None
    raw = outline.candidates
    read = version.read_candidates(raw, max_rows, lambda: _decoded(raw))
    assert outline.user is not None  # the caller knows
    return None if read is None else RankRequest(outline.user, read[0], outline.context or {}, keys=read[1])


def _decoded(raw: msgspec.Raw) -> Any:
    return decode(bytes(raw))
