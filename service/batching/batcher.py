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
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

from service.batching.cost import Cost
from service.batching.entries import (
    Answer,
    Batch,
    DeadlinePassed,
    Draining,
    Entry,
    Promise,
    QueueFull,
    expire,
)
from service.batching.lanes import Lanes
from service.batching.load import REQUEST_SECONDS, Load

T = TypeVar("T")
R = TypeVar("R")

# Longest call on the event loop: a health check, and every other version, waits that long.
INLINE_SECONDS = 0.0025
# One that took this long was no short one: the next ones run in the thread again, where the loop sees them hang.
OVERRUN_SECONDS = 0.02
OVERRUN_BATCHES = 64
# What a call would keep the loop is the time that its thread was at work on it, without that in which it waited for
# the interpreter. But one that waits for something else would keep it too: this share of the whole counts at least.
LEAST_BUSY = 0.25


class Batcher(Generic[T, R]):
    """A queue in front of `run`, which gives a result or an exception for each of its items, all of one type.

    `rows` sizes an item. A batch holds at most `max_batch_rows`; an item larger than that runs alone. At most
    `max_queue_rows` wait, and no more than `load`, which the batchers of a worker share, has time for; but where
    nothing waits, any item is admitted. `inline` lets short calls run on the event loop; `busy_clock` is a thread's.
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
        load: Load | None = None,
        inline: bool = False,
        on_batch: Callable[[int, list[float], float], None] | None = None,
        on_queue: Callable[[int], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        busy_clock: Callable[[], float] = time.thread_time,
        name: str = "batcher",
    ) -> None:
        self._run, self._rows, self._clock, self._name = run, rows, clock, name
        self._max_batch_rows, self._max_queue_rows = max_batch_rows, max_queue_rows
        self._load, self._inline = load or Load(clock=clock), inline
        # Where all runs in the thread the whole time counts: it may be a device that is at work.
        self._busy_clock = busy_clock if inline else clock
        self._on_batch, self._on_queue = on_batch, on_queue
        self._waiting = Lanes[T, R]()
        self._costs: dict[type, Cost] = {}
        self._overrun = 0
        self._running: Batch[T, R] | None = None
        self._called = False
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._work: SimpleQueue[Batch[T, R] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def queue_rows(self) -> int:
        """Rows waiting, the batch now running not counted."""
        return self._waiting.rows

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

    def enqueue(
        self, item: T, *, deadline: float | None = None, arrived: float | None = None
    ) -> asyncio.Future[Answer[R]]:
        """`add` with a future of the event loop, which is given back."""
        future: asyncio.Future[Answer[R]] = (self._loop or self._running_loop()).create_future()
        self.add(item, future, deadline=deadline, arrived=arrived)
        return future

    def add(self, item: T, promise: Promise[R], *, deadline: float | None = None, arrived: float | None = None) -> None:
        """Admit `item`, here since `arrived`, to be answered by `deadline`: times of the clock.

        Raises QueueFull, Draining, DeadlinePassed. The promise is ended with the answer, DeadlinePassed, BatchFailed,
        or what `run` gave for this item, always on the event loop. Whoever else ends it takes the item out of the
        queue.
        """
        if self._draining:
            raise Draining("the version is being unloaded")
        now = self._clock()
        if deadline is not None and now >= deadline:
            raise DeadlinePassed("the deadline had passed before scoring")
        rows = self._rows(item)
        work = self._work_of(type(item), rows)
        waited = 0.0 if arrived is None else now - arrived
        try:
            self._check_room(rows, work, waited)
        except QueueFull:
            if not self._drop_gone():
                raise
            self._check_room(rows, work, waited)
        loop = self._loop or self._running_loop()
        entry: Entry[T, R] = Entry(item, rows, work, promise, now, deadline or math.inf)
        if deadline is not None:
            timer = loop.call_later(deadline - now, expire, promise)
            promise.add_done_callback(lambda _: timer.cancel())
        self._waiting.add(entry)
        self._load.take(work)
        if self._running is not None:
            self._tell_queue()
        elif not self._called:
            self._call_soon(loop)

    async def close(self, *, seconds: float | None = None) -> None:
        """Takes nothing new, waits for all that is queued (at most `seconds`), then fails what is left and stops."""
        self._draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        running = self._running
        for entry in (*(() if running is None else running.entries), *self._waiting):
            if not entry.future.done():
                entry.future.set_exception(Draining("the version was stopped before it answered"))
        if running is not None and not running.is_settled:
            # It may never end; what was taken on with it must not count for ever.
            running.is_settled = True
            self._load.end(id(running))
            self._load.drop(len(running.entries), running.work)
        self._drop_gone()
        self._work.put(None)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        # Asked once: it is a system call.
        self._loop = asyncio.get_running_loop()
        return self._loop

    def _work_of(self, kind: type, rows: int) -> float:
        """Seconds of work that an item is; 0 as long as nothing is known."""
        cost = self._costs.get(kind)
        if cost is None or not cost.is_known:
            return 0.0
        alone = self._waiting.is_alone(kind, rows)
        return REQUEST_SECONDS + (cost.predict(rows) if alone else rows * cost.per_row)

    def _check_room(self, rows: int, work: float, waited: float) -> None:
        waiting = self._waiting.rows
        if waiting > 0 and waiting + rows > self._max_queue_rows:
            raise QueueFull(f"{waiting} rows wait already", self._load.drain_seconds)
        if work:
            self._load.check(work, waited=waited)

    def _drop_gone(self) -> bool:
        """Forgets callers that left or were told that they are too late; False where there are none."""
        gone = self._waiting.take_gone()
        if gone:
            self._load.drop(len(gone), sum(entry.work for entry in gone))
            self._tell_queue()
        return bool(gone)

    def _tell_queue(self) -> None:
        if self._on_queue is not None:
            self._on_queue(self._waiting.rows)

    def _call_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """All that arrives in this turn of the loop becomes one batch in the next."""
        self._called = True
        self._idle.clear()
        loop.call_soon(self._start_batch, loop)

    def _start_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Runs the next batch, or hands it to the thread, or falls idle."""
        self._called = False
        now = self._clock()
        entries, gone = self._waiting.take_next(self._most_rows, now)
        if gone:
            self._load.drop(len(gone), sum(entry.work for entry in gone))
        batch = self._running = Batch(entries, now) if entries else None
        if batch is None:
            self._idle.set()
        # Who hears that it is too late may add its next item at once: only now is all as `add` finds it at other times.
        for entry in gone:
            expire(entry.future)
        if batch is None:
            self._tell_queue()
            return
        if self._is_short(batch):
            self._work_on(batch)
            if batch.seconds > OVERRUN_SECONDS:
                self._overrun = OVERRUN_BATCHES
            self._finish(batch)
            return
        if self._thread is None:
            # A daemon: a model that never returns must not keep the process from ending.
            self._thread = threading.Thread(target=self._work_through, args=(loop,), name=self._name, daemon=True)
            self._thread.start()
        self._load.begin(id(batch), batch.work)
        self._work.put(batch)
        self._tell_queue()

    def _is_short(self, batch: Batch[T, R]) -> bool:
        cost = self._known_short(batch.kind)
        return cost is not None and cost.predict(batch.rows) <= INLINE_SECONDS

    def _known_short(self, kind: type) -> Cost | None:
        """What calls of a kind take, where they may run on the loop and it is known."""
        cost = self._costs.get(kind) if self._inline and not self._overrun else None
        return cost if cost is not None and cost.is_known else None

    def _most_rows(self, kind: type) -> int:
        """As many rows as make a short call, where it could run on the loop."""
        cost = self._known_short(kind)
        if cost is None or not cost.per_row:
            return self._max_batch_rows
        return min(self._max_batch_rows, max(1, int((INLINE_SECONDS - cost.fixed) / cost.per_row)))

    def _work_through(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread: runs batch after batch, whatever `run` raises."""
        while (batch := self._work.get()) is not None:
            self._work_on(batch)
            try:
                loop.call_soon_threadsafe(self._finish_threaded, batch)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

    def _work_on(self, batch: Batch[T, R]) -> None:
        begun = self._busy_clock()
        try:
            batch.results = self._run([entry.item for entry in batch.entries])
        except BaseException as error:  # noqa: BLE001 - whatever it was, the callers must hear of it and the work goes on
            batch.error = error
        busy = self._busy_clock() - begun
        batch.ended = self._clock()
        batch.busy = max(busy, LEAST_BUSY * batch.seconds)

    def _finish_threaded(self, batch: Batch[T, R]) -> None:
        self._load.end(id(batch))
        self._overrun = max(0, self._overrun - 1)
        self._finish(batch, inline=False)

    def _finish(self, batch: Batch[T, R], *, inline: bool = True) -> None:
        loop = self._loop or self._running_loop()
        try:
            if batch.error is None:
                self._costs.setdefault(batch.kind, Cost()).add(batch.rows, batch.busy)
            batch.deliver()
            if self._on_batch is not None:
                self._on_batch(batch.rows, [batch.started - entry.since for entry in batch.entries], batch.seconds)
        finally:
            if not batch.is_settled:
                # Once the callers, whom the loop has been told of by now, have made their answers: that is work too.
                batch.is_settled = True
                loop.call_soon(partial(self._load.finish, len(batch.entries), batch.work, inline=inline))
            # Whatever a hook does, the next batch starts; in the loop's next turn, so that who came meanwhile is in it.
            self._running = None
            self._call_soon(loop)
