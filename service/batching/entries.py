"""What waits in a batcher's queue, what runs together, and how it can end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class QueueFull(Exception):
    """There is no room for this request; `seconds` is how long what is at hand will take, as far as that is known."""

    def __init__(self, reason: str, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.seconds = seconds

    @property
    def retry_after(self) -> int:
        """Whole seconds after which there will be room."""
        return whole_seconds(self.seconds)


def whole_seconds(seconds: float) -> int:
    """As `Retry-After` says it: at least one."""
    return max(1, math.ceil(seconds))


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


class Promise(Protocol[R]):
    """What a caller waits on: a future of the event loop, or something that acts at once when it is ended."""

    def done(self) -> bool: ...
    def set_result(self, result: Answer[R], /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...
    def add_done_callback(self, call: Callable[[Any], object], /) -> None: ...


@dataclass(slots=True, eq=False)
class Entry(Generic[T, R]):
    """One caller waiting; `work` is what was taken on with it, in expected seconds."""

    item: T
    rows: int
    work: float
    future: Promise[R]
    since: float
    deadline: float


@dataclass(slots=True)
class Batch(Generic[T, R]):
    """What runs together. Whoever runs it fills `results` or `error`, `ended` and `busy`; the loop reads them
    afterwards. `busy` is the time of its thread that it took."""

    entries: list[Entry[T, R]]
    started: float
    ended: float = 0.0
    busy: float = 0.0
    results: Sequence[R | Exception] = ()
    error: BaseException | None = None
    is_settled: bool = False  # its work counts no more

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.entries)

    @property
    def work(self) -> float:
        return sum(entry.work for entry in self.entries)

    @property
    def seconds(self) -> float:
        return self.ended - self.started

    @property
    def kind(self) -> type:
        """The type of its items."""
        return type(self.entries[0].item)

    def deliver(self) -> None:
        """Give each caller that still waits its result, or the reason why there is none."""
        error = self.error
        if error is None and len(self.results) != len(self.entries):
            error = ValueError(f"{len(self.results)} results for {len(self.entries)} requests")
        if error is not None:
            for entry in self.entries:
                if not entry.future.done():
                    entry.future.set_exception(failure(error))
            return
        for entry, result in zip(self.entries, self.results, strict=True):
            if entry.deadline <= self.ended:
                expire(entry.future)
            if entry.future.done():
                continue
            if isinstance(result, Exception):
                entry.future.set_exception(result)
            else:
                entry.future.set_result(Answer(result, self.started - entry.since, self.seconds))


def failure(cause: BaseException) -> BatchFailed:
    failed = BatchFailed(f"{type(cause).__name__}: {cause}")
    failed.__cause__ = cause
    return failed


def expire(future: Promise[R]) -> None:
    if not future.done():
        future.set_exception(DeadlinePassed("the deadline passed before the answer"))
