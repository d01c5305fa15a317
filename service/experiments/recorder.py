"""Events into the store: those that wait while a transaction is under way go into the next one together."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from service.experiments.events import Event
from service.experiments.samples import item_number
from service.state import StateStore, Transaction
from service.state.counts import CellKey
from service.state.samples import Seen

# Events of one transaction: a large one keeps the other workers waiting.
TOGETHER = 20_000


class Recorded(NamedTuple):
    """What became of one request's events, by version: accepted impressions and clicks; the rest were known."""

    impressions: Counter[str]
    clicks: Counter[str]
    duplicate: int

    @property
    def accepted(self) -> int:
        return self.impressions.total() + self.clicks.total()


Waiting = tuple[list[Event], asyncio.Future[Recorded]]


class Recorder:
    """Used from one event loop; what it does to the store it does in the given thread."""

    def __init__(self, store: StateStore, thread: ThreadPoolExecutor) -> None:
        self._store, self._thread = store, thread
        self._waiting: list[Waiting] = []
        self._writing: asyncio.Task[None] | None = None
        self.events_waiting = 0

    async def record(self, events: list[Event]) -> Recorded:
        """Count the events that were never counted; they are in the store when this returns. Raises StateError."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Recorded] = loop.create_future()
        self._waiting.append((events, future))
        self.events_waiting += len(events)
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write_all())
        return await future

    async def close(self) -> None:
        """Write what waits."""
        if self._writing is not None:
            await self._writing

    async def _write_all(self) -> None:
        while self._waiting:
            group = self._next()
            try:
                done = await asyncio.get_running_loop().run_in_executor(self._thread, self._write, group)
            except Exception as error:  # noqa: BLE001 - each caller gets it as its own
                for _, future in group:
                    if not future.done():
                        future.set_exception(error)
                continue
            finally:
                self.events_waiting -= sum(len(events) for events, _ in group)
            for (_, future), recorded in zip(group, done, strict=True):
                if not future.done():  # the caller may have gone
                    future.set_result(recorded)

    def _next(self) -> list[Waiting]:
        count, size = 0, 0
        for events, _ in self._waiting:
            if count and size + len(events) > TOGETHER:
                break
            count, size = count + 1, size + len(events)
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    def _write(self, group: Sequence[Waiting]) -> list[Recorded]:
        with self._store.adding() as change:
            return record(change, [events for events, _ in group])


def record(change: Transaction, requests: Sequence[Sequence[Event]]) -> list[Recorded]:
    """Count what is new in each request: keys, cells and what is sampled, in the caller's one transaction."""
    known = _Known(change, requests)
    cells: dict[CellKey, list[int]] = {}
    seen: set[Seen] = set()
    answers = []
    for events in requests:
        answer = Recorded(Counter(), Counter(), 0)
        duplicates = 0
        for event in events:
            if not known.is_first(event):
                duplicates += 1
                continue
            version, fields = event.prediction.version, event.prediction.fields
            (answer.clicks if event.clicked else answer.impressions)[version] += 1
            cell = cells.setdefault(CellKey(fields.epoch, version, fields.reason, fields.sub), [0, 0, 0, 0])
            cell[3 if event.clicked else 2] += 1
            if fields.kept:
                seen.add(Seen(event.prediction.body, item_number(event.item), event.clicked))
        answers.append(answer._replace(duplicate=duplicates))
    change.counts.add(cells)
    if seen:
        change.samples.see(seen, int(time.time()))
    return answers


class _Known:
    """Which events were counted before: the store takes their keys, each of which is new to the first that asks."""

    def __init__(self, change: Transaction, requests: Sequence[Sequence[Event]]) -> None:
        self._new = change.counts.take_keys({event.key for events in requests for event in events})
        # A click's second key is taken only where the first was new, by whoever has that first.
        firsts = {event.key: event.click_key for events in reversed(requests) for event in reversed(events)}
        clicks = {second for first, second in firsts.items() if second is not None and first in self._new}
        self._new_clicks = change.counts.take_keys(clicks - self._new) | (clicks & self._new)

    def is_first(self, event: Event) -> bool:
        if event.key not in self._new:
            return False
        self._new.remove(event.key)
        if event.click_key is None:
            # Of a click without an id this one key is both.
            self._new_clicks.discard(event.key)
            return True
        if event.click_key not in self._new_clicks:
            return False
        self._new_clicks.remove(event.click_key)
        self._new.discard(event.click_key)
        return True
