"""Dynamic batching: many awaiting callers, one call of `run` at a time.

    enqueue ──▶ lanes ──▶ batch ──▶ run(items) ──▶ each caller's answer
       └─ QueueFull, Draining  └─ callers that left or are too late are dropped here

A batch never waits on purpose: it is what arrived in one turn of the event loop, or gathered while the one before it
ran. Calls that are known to be short run on the loop itself, where handing over would cost as much as they do; long
ones, and those whose length is not known yet, in the batcher's own thread, so that the loop lives on.

Small items of one type share a call. A large item is called alone, and lanes take turns: a large item delays a small
one by one call at most.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Generic, TypeVar

from service.batching.cost import Cost, Load
from service.batching.entries import Answer, Batch, DeadlinePassed, Draining, Entry, QueueFull, expire

T = TypeVar("T")
R = TypeVar("R")

# Longest call on the event loop: a health check, and every other version, waits that long.
INLINE_SECONDS = 0.0025
# Items of this many rows gain nothing from company: the fixed part of a call is a tenth of theirs.
LARGE_ROWS = 256
_LARGE = object()


class Batcher(Generic[T, R]):
    """A queue in front of `run`, which gives a result or an exception for each of its items, all of one type.

    `rows` sizes an item. A batch holds at most `max_batch_rows`; an item larger than that runs alone. At most
    `max_queue_rows` wait, and no more than will be done within `budget_seconds`, with all the other work that `load`
    knows of; but where nothing waits, any item is admitted. `inline` lets short calls run on the event loop.
    `on_batch(rows, queue seconds of each, run seconds)` is called on the event loop after a batch, `on_queue(rows)`
    when the number of waiting rows has changed. Used from one event loop, which must be running at the first item.
    """

    def __init__(
        self,
        run: Callable[[list[T]], Sequence[R | Exception]],
        *,
        rows: Callable[[T], int],
        max_batch_rows: int,
        max_queue_rows: int,
        budget_seconds: float = math.inf,
        load: Load | None = None,
        inline: bool = False,
        on_batch: Callable[[int, list[float], float], None] | None = None,
        on_queue: Callable[[int], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        name: str = "batcher",
    ) -> None:
        self._run, self._rows, self._clock, self._name = run, rows, clock, name
        self._max_batch_rows, self._max_queue_rows = max_batch_rows, max_queue_rows
        self._budget_seconds, self._load, self._inline = budget_seconds, load or Load(), inline
        self._on_batch, self._on_queue = on_batch, on_queue
        self._lanes: dict[object, deque[Entry[T, R]]] = {}
        self._costs: dict[type, Cost] = {}
        self._queue_rows = 0
        self._running: Batch[T, R] | None = None
        self._called = False
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._work: SimpleQueue[Batch[T, R] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def queue_rows(self) -> int:
        """Rows waiting, the batch now running not counted."""
        return self._queue_rows

    @property
    def is_running(self) -> bool:
        """Whether a batch runs in the thread: who comes now has to wait for it."""
        return self._running is not None

    @property
    def busy_seconds(self) -> float:
        """How long the batch now running has run; 0 when idle."""
        running = self._running
        return 0.0 if running is None else self._clock() - running.started

    async def submit(self, item: T, *, deadline: float | None = None) -> Answer[R]:
        """The answer for `item`; raises as `enqueue` and its future do. A caller that is cancelled leaves the queue."""
        return await self.enqueue(item, deadline=deadline)

    def enqueue(self, item: T, *, deadline: float | None = None) -> asyncio.Future[Answer[R]]:
        """Admit `item` now, to be answered by `deadline`, a time of the clock. QueueFull, Draining, DeadlinePassed.

        The future raises DeadlinePassed, BatchFailed, or what `run` gave for this item. Whoever ends the future, by
        cancelling it or otherwise, takes the item out of the queue.
        """
        if self._draining:
            raise Draining("the version is being unloaded")
        now = self._clock()
        if deadline is not None and now >= deadline:
            raise DeadlinePassed("the deadline had passed before scoring")
        rows = self._rows(item)
        seconds = self._expected(type(item), rows)
        if self._is_full(rows, seconds):
            self._drop_gone()
            if self._is_full(rows, seconds):
                raise QueueFull(f"{self._queue_rows} rows wait already", self._load.seconds)
        loop = asyncio.get_running_loop()
        entry = Entry[T, R](item, rows, seconds, loop.create_future(), now, deadline or math.inf)
        if deadline is not None:
            timer = loop.call_later(deadline - now, expire, entry.future)
            entry.future.add_done_callback(lambda _: timer.cancel())
        lane = _LARGE if rows >= LARGE_ROWS else type(item)
        self._lanes.setdefault(lane, deque()).append(entry)
        self._queue_rows += rows
        self._load.take(seconds)
        if self._running is not None:
            self._tell_queue()
        elif not self._called:
            self._call_soon(loop)
        return entry.future

    async def close(self, *, seconds: float | None = None) -> None:
        """Takes nothing new, waits for all that is queued (at most `seconds`), then fails what is left and stops."""
        self._draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        running = [] if self._running is None else self._running.entries
        for entry in (*running, *(entry for lane in self._lanes.values() for entry in lane)):
            if not entry.future.done():
                entry.future.set_exception(Draining("the version was stopped before it answered"))
        self._drop_gone()
        self._work.put(None)

    def _expected(self, kind: type, rows: int) -> float:
        """Seconds that an item adds to what is waiting; next to nothing as long as nothing is known."""
        cost = self._costs.get(kind)
        if cost is None:
            return self._load.overhead
        seconds = (cost.predict(rows) or 0.0) if rows >= LARGE_ROWS else rows * cost.per_row
        return seconds + self._load.overhead

    def _is_full(self, rows: int, seconds: float) -> bool:
        if self._queue_rows == 0 and self._running is None:
            return self._load.seconds > 0 and self._load.seconds + seconds > self._budget_seconds
        full = self._queue_rows > 0 and self._queue_rows + rows > self._max_queue_rows
        return full or self._load.seconds + seconds > self._budget_seconds

    def _drop_gone(self) -> None:
        """Forgets callers that left or were told that they are too late."""
        for lane, entries in self._lanes.items():
            for entry in entries:
                if entry.future.done():
                    self._load.done(entry.seconds)
            self._lanes[lane] = deque(entry for entry in entries if not entry.future.done())
        self._queue_rows = sum(entry.rows for entries in self._lanes.values() for entry in entries)
        self._tell_queue()

    def _tell_queue(self) -> None:
        if self._on_queue is not None:
            self._on_queue(self._queue_rows)

    def _call_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """All that arrives in this turn of the loop becomes one batch in the next."""
        self._called = True
        self._idle.clear()
        loop.call_soon(self._start_batch, loop)

    def _start_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Runs the next batch, or hands it to the thread, or falls idle."""
        self._called = False
        now = self._clock()
        entries = self._next_entries(now)
        if not entries:
            self._running = None
            self._idle.set()
            self._tell_queue()
            return
        batch = self._running = Batch(entries, now)
        if self._inline and self._is_short(batch):
            self._work_on(batch)
            self._finish(batch, on_loop=True)
            return
        if self._thread is None:
            # A daemon: a model that never returns must not keep the process from ending.
            self._thread = threading.Thread(target=self._work_through, args=(loop,), name=self._name, daemon=True)
            self._thread.start()
        self._work.put(batch)
        self._tell_queue()

    def _is_short(self, batch: Batch[T, R]) -> bool:
        cost = self._costs.get(batch.kind)
        seconds = None if cost is None else cost.predict(batch.rows)
        return seconds is not None and seconds <= INLINE_SECONDS

    def _next_entries(self, now: float) -> list[Entry[T, R]]:
        """The next callers of the lane whose turn it is, in order of arrival, as many as fit; the first always fits."""
        for lane in list(self._lanes):
            waiting = self._lanes.pop(lane)
            entries = self._fitting(waiting, 1 if lane is _LARGE else self._most_rows(lane), now)
            if waiting:
                self._lanes[lane] = waiting  # behind the others
            if entries:
                return entries
        return []

    def _fitting(self, waiting: deque[Entry[T, R]], most: int, now: float) -> list[Entry[T, R]]:
        entries: list[Entry[T, R]] = []
        rows = 0
        while waiting:
            entry = waiting[0]
            if entry.deadline <= now:
                expire(entry.future)
            if not entry.future.done():
                if entries and rows + entry.rows > most:
                    break
                entries.append(entry)
                rows += entry.rows
            else:
                self._load.done(entry.seconds)
            waiting.popleft()
            self._queue_rows -= entry.rows
        return entries

    def _most_rows(self, kind: object) -> int:
        """As many rows as make a short call, where it could run on the loop."""
        cost = self._costs.get(kind) if self._inline and isinstance(kind, type) else None
        fixed = None if cost is None else cost.predict(0)
        if cost is None or fixed is None or not cost.per_row:
            return self._max_batch_rows
        return min(self._max_batch_rows, max(1, int((INLINE_SECONDS - fixed) / cost.per_row)))

    def _work_through(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread: runs batch after batch, whatever `run` raises."""
        while (batch := self._work.get()) is not None:
            self._work_on(batch)
            try:
                loop.call_soon_threadsafe(self._finish, batch)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

    def _work_on(self, batch: Batch[T, R]) -> None:
        try:
            batch.results = self._run([entry.item for entry in batch.entries])
        except BaseException as error:  # noqa: BLE001 - whatever it was, the callers must hear of it and the work goes on
            batch.error = error
        batch.ended = self._clock()

    def _finish(self, batch: Batch[T, R], on_loop: bool = False) -> None:
        seconds = batch.ended - batch.started
        try:
            self._load.answered(len(batch.entries), seconds if on_loop else 0.0)
            self._load.done(sum(entry.seconds for entry in batch.entries))
            if batch.error is None:
                self._costs.setdefault(batch.kind, Cost()).add(batch.rows, seconds)
            batch.deliver()
            if self._on_batch is not None:
                self._on_batch(batch.rows, [batch.started - entry.since for entry in batch.entries], seconds)
        finally:
            # Whatever a hook does, the next batch starts; in the loop's next turn, so that who came meanwhile is in it.
            self._running = None
            self._call_soon(asyncio.get_running_loop())
