"""Warm before ready: every shape class that an engine will meet is run until its times settle.

TorchScript optimises a method on its first calls, oneDNN compiles kernels for each number of rows that it meets, and
an allocator grows to the largest batch: a request that came first would wait for all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from service.scoring.encoded import Bag, Encoded
from service.scoring.engine import ALL, ITEMS, USERS, Engine
from service.scoring.half import Half
from service.scoring.layout import MISSING, Layout
from service.scoring.sizes import BLOCK, sizes_from

Call = Callable[[], object]
# Times have settled once the last of SETTLED calls all lie within SPREAD of the shortest of all.
SETTLED, SPREAD, MOST_CALLS = 3, 1.5, 40
# Rows of the classes: one, a few, the usual rankings.
CLASSES = (1, 4, 20, 100, 500)


@dataclass(frozen=True, slots=True)
class Clock:
    """The time, the time that a call was at work, and rests: a warming that shares its cores with serving rests
    `rests` times as long as it worked.

    On a CPU that is the time of this thread: what waits for a core, or for the interpreter, has neither worked nor
    says anything of how fast a call is.
    """

    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    rests: float = 3.0
    busy: Callable[[], float] = time.thread_time


def warm(
    engine: Engine,
    layout: Layout,
    half: Half | None,
    max_rows: int,
    *,
    seconds: float = 30.0,
    clock: Clock = Clock(),
) -> bool:
    """Run every class of up to `max_rows` rows until its times settle, for at most `seconds`; whether all did.

    `half` is what rankings are made of, the catalog's or None. Meant for a thread beside serving: torch works without
    the interpreter's lock.
    """
    until = clock.now() + seconds
    if engine.fused_from is not None:
        engine.fused_from = _faster_from(engine, layout, half, clock)
    settled = [settle(call, until, clock) for call in _classes(engine, layout, half, max_rows)]
    for call in _kernels(engine, layout, half, max_rows):
        if clock.now() < until:
            _timed(call, clock)
    return all(settled)


def settle(call: Call, until: float, clock: Clock) -> bool:
    """Call until the last times are alike; False where the time or MOST_CALLS ended first."""
    times: list[float] = []
    while clock.now() < until and len(times) < MOST_CALLS:
        times.append(_timed(call, clock))
        if len(times) > SETTLED and max(times[-SETTLED:]) <= SPREAD * min(times):
            return True
    return False


def blank(layout: Layout, sides: tuple[str, ...], rows: int) -> Encoded:
    """Rows of missing values of the columns of `sides`."""
    numerics = sum(column.side in sides for column in layout.numerics)
    ids = sum(column.side in sides for column in layout.ids)
    bag = Bag(np.full(rows, MISSING), np.arange(rows + 1))
    bags = (bag,) * sum(column.side in sides for column in layout.bags)
    return Encoded(np.zeros((rows, numerics), np.float32), np.full((rows, ids), MISSING), bags)


def _classes(engine: Engine, layout: Layout, half: Half | None, max_rows: int) -> Iterator[Call]:
    sizes = [rows for rows in (*CLASSES, max_rows) if rows <= max_rows]
    for rows in sizes:
        yield _forward(engine, layout, rows)
    if half is None or not half.rows:
        return
    for rows in sizes:
        yield _ranking(engine, layout, half, rows, users=1)
        yield _ranking(engine, layout, half, rows, users=min(4, rows))
    for rows in (one for one in sizes if one < max_rows):
        fresh = blank(layout, ITEMS, rows)
        yield lambda fresh=fresh: engine.take(engine.items(fresh), np.arange(fresh.rows))  # type: ignore[misc]


def _kernels(engine: Engine, layout: Layout, half: Half | None, max_rows: int) -> Iterator[Call]:
    """One call for each number of rows that kernels are compiled for."""
    for rows in sizes_from(min(engine.fused_from or BLOCK + 1, max_rows)):
        yield _forward(engine, layout, rows)
        if half is not None and half.rows:
            yield _ranking(engine, layout, half, rows, users=1)


def _forward(engine: Engine, layout: Layout, rows: int) -> Call:
    encoded = blank(layout, ALL, rows)
    return lambda: engine.forward(encoded)


def _ranking(engine: Engine, layout: Layout, half: Half, rows: int, users: int) -> Call:
    encoded = blank(layout, USERS, users)
    places, index = np.arange(rows) % half.rows, np.arange(rows) % users
    return lambda: engine.serve(encoded, half, places, index)


def _faster_from(engine: Engine, layout: Layout, half: Half | None, clock: Clock) -> int | None:
    """The number of rows from which fused layers are faster on this processor, None where they never are."""
    found: int | None = None
    for rows in (BLOCK, 256, 128, 96, 64):
        ranks = half is not None and half.rows > 0
        call = _ranking(engine, layout, half, rows, 1) if half is not None and ranks else _forward(engine, layout, rows)
        best = {1: float("inf"), BLOCK + 1: float("inf")}
        for _ in range(8):  # in turns: what else the machine does falls on both
            for start in best:
                engine.fused_from = start
                best[start] = min(best[start], _timed(call, clock))
        if best[1] > best[BLOCK + 1]:
            break
        found = rows
    return found


def _timed(call: Call, clock: Clock) -> float:
    started = clock.busy()
    call()
    taken = clock.busy() - started
    if clock.rests:
        clock.sleep(clock.rests * taken)
    return taken
