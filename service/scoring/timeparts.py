"""Hour, weekday and month of instants in a zone: one definition for files and requests."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np

from service.scoring.encoded import Ints

SIZES = {"hour": 24, "weekday": 7, "month": 12}
_DAY, _QUARTER = 86_400, 900


def time_part(part: str, seconds: Ints, tz: str) -> Ints:
    """0-based part (B,) of epoch seconds (B,): hour 0-23, weekday Monday = 0, month January = 0."""
    local = seconds if tz == "UTC" else seconds + _offsets(seconds, tz)
    days = np.floor_divide(local, _DAY)
    if part == "hour":
        return np.asarray(np.floor_divide(local - days * _DAY, 3600))
    if part == "weekday":
        return np.asarray(np.mod(days + 3, 7))  # 1970-01-01 was a Thursday
    return np.asarray(days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12)


def _offsets(seconds: Ints, tz: str) -> Ints:
    """The zone's offset from UTC in seconds, found once for each quarter of an hour that occurs."""
    quarters, inverse = np.unique(np.floor_divide(seconds, _QUARTER), return_inverse=True)
    offsets = np.array([_offset(tz, int(quarter) * _QUARTER) for quarter in quarters], np.int64)
    ends = np.array([_offset(tz, int(quarter) * _QUARTER + _QUARTER - 1) for quarter in quarters], np.int64)
    found = offsets[inverse]
    for odd in np.flatnonzero((offsets != ends)[inverse]):  # a zone that changed inside a quarter, as before 1920
        found[odd] = _offset(tz, int(seconds[odd]))
    return found


@lru_cache(maxsize=65_536)
def _offset(tz: str, second: int) -> int:
    moment = datetime.fromtimestamp(second, UTC).astimezone(zoneinfo.ZoneInfo(tz))
    offset = moment.utcoffset()
    assert offset is not None  # an aware datetime has one
    return int(offset.total_seconds())
