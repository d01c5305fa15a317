"""Times: values that lie after their row's own time, or count the time to a row still to come; parts that overlap."""

from __future__ import annotations

import numpy as np

from service.scoring.encoded import Ints
from training.leakage.finding import LEAK, Finding
from training.leakage.sample import Column, Doubles, Sample

LATER = 0.01  # share of values that may lie after their row's time: clocks differ
SLACK = 60.0  # seconds that clocks may differ by
EPOCH_FROM = 1e8  # numbers from 1973 on, in seconds
HITS = 0.5  # share of values that point at a later row of the same user or item
PROBES = 5_000  # rows that are asked where they point
SCALES = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86_400.0}
_KNOWN = "keep only what was known at the row's own time"


def after_their_time(sample: Sample) -> list[Finding]:
    """Features that are times after their row's own."""
    if sample.times is None:
        return []
    found = [_later(sample, column) for column in sample.columns if column.numbers is not None]
    return [finding for finding in found if finding is not None]


def times_ahead(sample: Sample, seed: int) -> list[Finding]:
    """Durations that lead from a row to a later one; the sample must hold all rows of its users or items."""
    if sample.times is None:
        return []
    found = [_points_ahead(sample, column, seed) for column in sample.columns if column.kind == "numeric"]
    return [finding for finding in found if finding is not None]


def mixed_times(sample: Sample, kind: str, timestamp: str | None) -> list[Finding]:
    """A split under which training rows lie after the rows that judge them."""
    carrier = timestamp if sample.times is not None else next((c.name for c in sample.columns if _is_time(c)), None)
    times = sample.times
    if times is None:
        times = next((c.numbers for c in sample.columns if _is_time(c)), None)
    if kind == "time" or carrier is None or times is None or not len(sample.test) or not len(sample.train):
        return []
    train, test = times[sample.train], times[sample.test]
    before = float(np.nanmean(test < np.nanmax(train)))
    if before < 0.5 or np.nanmin(times) == np.nanmax(times):
        return []
    evidence = f'split.kind = "{kind}", and {before:.0%} of the rows that judge are older than the newest training row'
    return [Finding(LEAK, "split mixes the times", carrier, evidence, 'use split.kind = "time"')]


def _is_time(column: Column) -> bool:
    return column.kind == "datetime"


def _later(sample: Sample, column: Column) -> Finding | None:
    assert column.numbers is not None  # the caller chose such
    assert sample.times is not None  # as above
    known = np.flatnonzero(~column.missing & np.isfinite(sample.times))
    if not len(known):
        return None
    seconds = _as_epoch(column.numbers[known], sample.times[known])
    if seconds is None:
        return None
    ahead = seconds - sample.times[known]
    share = float((ahead > SLACK).mean())
    if share <= LATER:
        return None
    typical = float(np.median(ahead[ahead > SLACK]))
    evidence = f"{share:.1%} of its values lie after their row's own time, by {_duration(typical)} in the middle"
    return Finding(LEAK, "later than its row", column.name, evidence, _KNOWN)


def _as_epoch(values: Doubles, times: Doubles) -> Doubles | None:
    """The values in seconds where they look like times of this data's years, else None."""
    for divisor in (1.0, 1e3, 1e6):
        middle = float(np.median(values)) / divisor
        if middle >= EPOCH_FROM and abs(middle - float(np.median(times))) < 5 * 366 * 86_400:
            return values / divisor
    return None


def _points_ahead(sample: Sample, column: Column, seed: int) -> Finding | None:
    """A duration that leads from its row to a later one of the same user or item: the time until the next click."""
    assert column.numbers is not None  # the caller chose such
    assert sample.times is not None  # as above
    for whose, codes in (("unit", sample.units), ("item", sample.items)):
        if codes is None:
            continue
        known = (codes >= 0) & ~column.missing & np.isfinite(sample.times) & (column.numbers > 0)
        rows = np.flatnonzero(known)
        if len(rows) < 50 or len(rows) < 0.05 * len(codes):
            continue
        random = np.random.default_rng(seed)
        rows = np.sort(random.choice(rows, min(len(rows), PROBES), replace=False))
        stamps = np.unique(_stamp(codes[codes >= 0], sample.times[codes >= 0]))
        shuffled = random.permutation(column.numbers[rows])
        for unit, seconds in SCALES.items():
            hits = _hits(stamps, codes[rows], sample.times[rows] + column.numbers[rows] * seconds)
            if hits < HITS:
                continue
            chance = _hits(stamps, codes[rows], sample.times[rows] + shuffled * seconds)
            if hits >= 3 * chance:
                evidence = f"in {hits:.0%} of rows it is the {unit} until a later row of the same {whose}"
                return Finding(LEAK, "time to a later row", column.name, f"{evidence} ({chance:.0%} by chance)", _KNOWN)
    return None


def _stamp(codes: Ints, times: Doubles) -> Ints:
    """One number for a group and a second."""
    return codes * (1 << 36) + np.round(times).astype(np.int64)


def _hits(stamps: Ints, codes: Ints, times: Doubles) -> float:
    wanted = _stamp(codes, np.clip(times, 0, 2**35))
    place = np.minimum(np.searchsorted(stamps, wanted), len(stamps) - 1)
    return float((stamps[place] == wanted).mean())


def _duration(seconds: float) -> str:
    for name, length in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.0f} s"
