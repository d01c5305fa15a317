"""Dynamic batching: many awaiting callers, one call of `run` at a time in the batcher's own thread.

    submit ──▶ queue (bounded in rows) ──▶ batch ──▶ run(items), off the event loop ──▶ each caller's answer
       └─ QueueFull, Draining                 └─ callers that left or are too late are dropped here

A batch never waits on purpose: it is what gathered while the one before it ran.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class QueueFull(Exception):
    """The rows waiting leave no room for this request."""


class Draining(Exception):
    """The batcher takes no new work."""


class DeadlinePassed(Exception):
    """The caller's deadline came before its answer."""


class BatchFailed(Exception):
    """`run` failed as a whole, or broke its promise of one result an item; the cause is chained."""


class Answer(NamedTuple, Generic[R]):
    """A result, and how long its request waited in the queue and was worked on."""

    value: R
    queue_seconds: float
    run_seconds: float


@dataclass(slots=True, eq=False)
class Entry(Generic[T, R]):
    """One caller waiting."""

    item: T
    rows: int
    future: asyncio.Future[Answer[R]]
    since: float
    deadline: float


@dataclass(slots=True)
class Batch(Generic[T, R]):
    """What runs together. The thread fills `results` or `error` and `ended`; the loop reads them afterwards."""

    entries: list[Entry[T, R]]
    started: float
    ended: float = 0.0
    results: Sequence[R | Exception] = ()
    error: BaseException | None = None


class Batcher(Generic[T, R]):
    """One queue and one thread in front of `run`, which gives a result or an exception for each of its items.

    `rows` sizes an item. A batch holds at most `max_batch_rows`; an item larger than that runs alone. At most
    `max_queue_rows` wait, but an empty queue admits any item. `on_batch(rows, queue seconds of each, run seconds)` is
    called on the event loop after a batch, `on_queue(rows)` when the number of waiting rows has changed. Used from one
    event loop, which must be running when the first item is submitted.
    """

    def __init__(
        self,
        run: Callable[[list[T]], Sequence[R | Exception]],
        *,
        rows: Callable[[T], int],
        max_batch_rows: int,
        max_queue_rows: int,
        on_batch: Callable[[int, list[float], float], None] | None = None,
        on_queue: Callable[[int], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        name: str = "batcher",
    ) -> None:
        self._run, self._rows, self._clock, self._name = run, rows, clock, name
        self._max_batch_rows, self._max_queue_rows = max_batch_rows, max_queue_rows
        self._on_batch, self._on_queue = on_batch, on_queue
        self._waiting: deque[Entry[T, R]] = deque()
        self._queue_rows = 0
        self._running: Batch[T, R] | None = None
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
        if self._is_full(rows):
            self._drop_gone()
            if self._is_full(rows):
                raise QueueFull(f"{self._queue_rows} rows wait already")
        loop = asyncio.get_running_loop()
        entry = Entry[T, R](item, rows, loop.create_future(), now, math.inf if deadline is None else deadline)
        if deadline is not None:
            timer = loop.call_later(deadline - now, _expire, entry.future)
            entry.future.add_done_callback(lambda _: timer.cancel())
        self._waiting.append(entry)
        self._queue_rows += rows
        if self._running is None:
            self._start_batch(loop)
        else:
            self._tell_queue()
        return entry.future

    async def close(self, *, seconds: float | None = None) -> None:
        """Takes nothing new, waits for all that is queued (at most `seconds`), then fails what is left and stops."""
        self._draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        running = [] if self._running is None else self._running.entries
        for entry in (*running, *self._waiting):
            if not entry.future.done():
                entry.future.set_exception(Draining("the version was stopped before it answered"))
        self._drop_gone()
        self._work.put(None)

    def _is_full(self, rows: int) -> bool:
        return self._queue_rows > 0 and self._queue_rows + rows > self._max_queue_rows

    def _drop_gone(self) -> None:
        """Forgets callers that left or were told that they are too late."""
        self._waiting = deque(entry for entry in self._waiting if not entry.future.done())
        self._queue_rows = sum(entry.rows for entry in self._waiting)
        self._tell_queue()

    def _tell_queue(self) -> None:
        if self._on_queue is not None:
            self._on_queue(self._queue_rows)

    def _start_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hands the next batch to the thread, or falls idle. The hook comes last, so that its failing stops nothing."""
        now = self._clock()
        entries = self._next_entries(now)
        if entries:
            self._idle.clear()
            self._running = Batch(entries, now)
            if self._thread is None:
                # A daemon: a model that never returns must not keep the process from ending.
                self._thread = threading.Thread(target=self._work_through, args=(loop,), name=self._name, daemon=True)
                self._thread.start()
            self._work.put(self._running)
        else:
            self._running = None
            self._idle.set()
        self._tell_queue()

    def _next_entries(self, now: float) -> list[Entry[T, R]]:
        """The next callers in order of arrival, as many as fit; the first always fits."""
        entries: list[Entry[T, R]] = []
        rows = 0
        while self._waiting:
            entry = self._waiting[0]
            if entry.deadline <= now:
                _expire(entry.future)
            if not entry.future.done():
                if entries and rows + entry.rows > self._max_batch_rows:
                    break
                entries.append(entry)
                rows += entry.rows
            self._waiting.popleft()
            self._queue_rows -= entry.rows
        return entries

    def _work_through(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread: runs batch after batch, whatever `run` raises."""
        while (batch := self._work.get()) is not None:
            try:
                batch.results = self._run([entry.item for entry in batch.entries])
            except BaseException as error:  # noqa: BLE001 - whatever it was, the callers must hear of it and the thread must live
                batch.error = error
            batch.ended = self._clock()
            try:
                loop.call_soon_threadsafe(self._finish, batch)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

    def _finish(self, batch: Batch[T, R]) -> None:
        try:
            self._deliver(batch)
            if self._on_batch is not None:
                waits = [batch.started - entry.since for entry in batch.entries]
                self._on_batch(sum(entry.rows for entry in batch.entries), waits, batch.ended - batch.started)
        finally:
            # Whatever a hook does, the next batch starts.
            self._start_batch(asyncio.get_running_loop())

    def _deliver(self, batch: Batch[T, R]) -> None:
        error = batch.error
        if error is None and len(batch.results) != len(batch.entries):
            error = ValueError(f"{len(batch.results)} results for {len(batch.entries)} requests")
        if error is not None:
            for entry in batch.entries:
                if not entry.future.done():
                    entry.future.set_exception(_failure(error))
            return
        seconds = batch.ended - batch.started
        for entry, result in zip(batch.entries, batch.results, strict=True):
            if entry.future.done():
                continue
            if isinstance(result, Exception):
                entry.future.set_exception(result)
            else:
                entry.future.set_result(Answer(result, batch.started - entry.since, seconds))


def _failure(cause: BaseException) -> BatchFailed:
    failure = BatchFailed(f"{type(cause).__name__}: {cause}")
    failure.__cause__ = cause
    return failure


def _expire(future: asyncio.Future[Answer[R]]) -> None:
    if not future.done():
        future.set_exception(DeadlinePassed("the deadline passed before the answer"))
