"""The usual request in row form, told by its outline: its rows are read by the version that will answer it.

Whatever is not usual gives None, and is then parsed and judged part by part (asking.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from service.api.asking import Asked
from service.api.body import Headers, decode
from service.scoring.predictor import Predictor
from service.traffic import Split, unit_text


class _Outline(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The rows are left as JSON."""

    instances: msgspec.Raw
    unit_id: str | int


_DECODER = msgspec.json.Decoder(_Outline)


def glance(
    body: bytes | bytearray, headers: Headers, split: Split, predictor: Callable[[str], Predictor | None], max_rows: int
) -> Asked | None:
    """What is asked for, its unit assigned and its rows read; None where it takes more than a glance to say."""
    if b"x-model-version" in headers:
        return None
    try:
        outline = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    unit = unit_text(outline.unit_id)
    if unit is None:
        return None
    assigned = split.assign(unit)
    version = predictor(assigned.version)
    request = None if version is None else version.read(outline.instances, max_rows, lambda: _rows(outline.instances))
    return None if request is None else Asked(request, has_unit=True, unit=unit, assigned=assigned)


def _rows(raw: msgspec.Raw) -> Any:
    return decode(bytes(raw))
