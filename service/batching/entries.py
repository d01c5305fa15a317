"""What waits in a batcher's queue, what runs together, and how it can end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class QueueFull(Exception):
    """What waits leaves no room for this request; `seconds` is how long it will take, as far as that is known."""

    def __init__(self, reason: str, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.seconds = seconds


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
    """One caller waiting; `seconds` is what its work is expected to take."""

    item: T
    rows: int
    seconds: float
    future: asyncio.Future[Answer[R]]
    since: float
    deadline: float


@dataclass(slots=True)
class Batch(Generic[T, R]):
    """What runs together. Whoever runs it fills `results` or `error` and `ended`; the loop reads them afterwards."""

    entries: list[Entry[T, R]]
    started: float
    ended: float = 0.0
    results: Sequence[R | Exception] = ()
    error: BaseException | None = None

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.entries)

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
        seconds = self.ended - self.started
        for entry, result in zip(self.entries, self.results, strict=True):
            if entry.future.done():
                continue
            if isinstance(result, Exception):
                entry.future.set_exception(result)
            else:
                entry.future.set_result(Answer(result, self.started - entry.since, seconds))


def failure(cause: BaseException) -> BatchFailed:
    failed = BatchFailed(f"{type(cause).__name__}: {cause}")
    failed.__cause__ = cause
    return failed


def expire(future: asyncio.Future[Answer[R]]) -> None:
    if not future.done():
        future.set_exception(DeadlinePassed("the deadline passed before the answer"))
