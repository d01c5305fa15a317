"""Who waits: small items by their type, large ones in a lane of their own; the lanes take turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from service.batching.entries import Entry

T = TypeVar("T")
R = TypeVar("R")

# Items of this many rows gain nothing from company: the fixed part of a call is a tenth of theirs.
LARGE_ROWS = 256
_LARGE = object()


class Lanes(Generic[T, R]):
    """Entries in order of arrival within each lane; `rows` are those of all that wait."""

    def __init__(self) -> None:
        self.rows = 0
        self._lanes: dict[object, deque[Entry[T, R]]] = {}

    def __iter__(self) -> Iterator[Entry[T, R]]:
        return (entry for entries in self._lanes.values() for entry in entries)

    def add(self, entry: Entry[T, R]) -> None:
        self._lanes.setdefault(_lane(type(entry.item), entry.rows), deque()).append(entry)
        self.rows += entry.rows

    def is_alone(self, kind: type, rows: int) -> bool:
        """Whether an item would be called without company, as things are."""
        lane = _lane(kind, rows)
        return lane is _LARGE or lane not in self._lanes

    def take_gone(self) -> list[Entry[T, R]]:
        """Those whose callers left or were told that they are too late; they wait no more."""
        gone = [entry for entry in self if entry.future.done()]
        if gone:
            left = {
                lane: deque(one for one in waiting if not one.future.done()) for lane, waiting in self._lanes.items()
            }
            self._lanes = {lane: waiting for lane, waiting in left.items() if waiting}
            self.rows -= sum(entry.rows for entry in gone)
        return gone

    def take_next(self, most_rows: Callable[[type], int], now: float) -> tuple[list[Entry[T, R]], list[Entry[T, R]]]:
        """The next callers of the lane whose turn it is, as many as fit; the first always fits. And who is gone, or too
        late by `now`: to be told by the caller, once it can take what they may bring next."""
        gone: list[Entry[T, R]] = []
        for lane in list(self._lanes):
            waiting = self._lanes.pop(lane)
            most = most_rows(lane) if isinstance(lane, type) else 1
            entries = self._fitting(waiting, most, now, gone)
            if waiting:
                self._lanes[lane] = waiting  # behind the others
            if entries:
                return entries, gone
        return [], gone

    def _fitting(
        self, waiting: deque[Entry[T, R]], most: int, now: float, gone: list[Entry[T, R]]
    ) -> list[Entry[T, R]]:
        entries: list[Entry[T, R]] = []
        rows = 0
        while waiting:
            entry = waiting[0]
            if entry.deadline <= now or entry.future.done():
                gone.append(entry)
            else:
                if entries and rows + entry.rows > most:
                    break
                entries.append(entry)
                rows += entry.rows
            waiting.popleft()
            self.rows -= entry.rows
        return entries


def _lane(kind: type, rows: int) -> object:
    return _LARGE if rows >= LARGE_ROWS else kind
