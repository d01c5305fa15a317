"""The shadow: a version that scores a fraction of the requests once others have answered them.

    offer ──▶ queue ──▶ when nothing is at hand ──▶ the version's batcher ──▶ agreement ──▶ sums ──▶ store
       └─ full: dropped and counted                     └─ refused or failed: counted

An answer never waits for it: a request is offered after its answer was sent, and scored while its version's batcher is
idle and the worker has nothing else to answer. What it finds is kept as sums, written at most a second late.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Protocol

from service import logs
from service.batching import Draining, Load, QueueFull
from service.experiments.agreement import Sums, agreement
from service.experiments.answered import Answered
from service.experiments.ledger import Ledger
from service.registry import Loaded
from service.scorer import Request, row_count
from service.scoring.encoded import Floats
from service.scoring.predictor import Predictor, RankRequest, RowRequest
from service.state import Document, StateError, Transaction
from service.state.shadows import Pair, Seen, Value, add_sums, add_values
from service.traffic import uniform

MAX_REQUESTS = 256
FLUSH_SECONDS = 1.0
# Work at hand of less than this is none; how often it is looked at.
QUIET_SECONDS = 0.001
LOOK_SECONDS = 0.002
# Rows whose values are looked at one by one, between two flushes.
LOOKS = 20
# Comparing so many rows takes as long as handing it to a thread.
LARGE_ROWS = 512


class View(Protocol):
    """What the control plane tells, and takes."""

    @property
    def document(self) -> Document: ...
    async def change(self, edit: Callable[[Transaction], None]) -> None: ...


class Versions(Protocol):
    """The versions of this worker, and what it has at hand."""

    @property
    def workload(self) -> Load: ...
    def get(self, version: str) -> Loaded | None: ...


class Counts(Protocol):
    """Where results are counted: scored, dropped or failed."""

    def shadow(self, version: str, result: str) -> None: ...


class Keep(Protocol):
    """Told once of each answer that was to be shadowed, with the shadow's scores (B,) where there are any: to be joined
    with clicks."""

    def __call__(self, answered: Answered, shadow_scores: Floats | None) -> None: ...


class Sample(NamedTuple):
    """Which units are shadowed, and by which version."""

    version: str
    fraction: float
    salt: bytes

    @classmethod
    def of(cls, document: Document) -> Sample | None:
        """What a document asks for; None where nothing shadows."""
        if document.shadow is None:
            return None
        salt = document.experiment.encode("utf-8", "surrogatepass") + b"/shadow\0"
        return cls(document.shadow["version"], document.shadow["fraction"], salt)

    def holds(self, unit: str | None) -> bool:
        """Whether a unit is in the sample: for good, where it is one; drawn afresh where there is none."""
        if not unit:
            return random.random() < self.fraction
        return self.fraction >= 1.0 or uniform(self.salt + unit.encode("utf-8", "surrogatepass")) < self.fraction


class Shadowing:
    """The shadow of one worker; an async context manager. At most `max_rows` rows and MAX_REQUESTS requests wait."""

    def __init__(
        self, view: View, versions: Versions, counts: Counts, *, max_rows: int, keep: Keep | None = None
    ) -> None:
        self._view, self._versions, self._counts, self._keep = view, versions, counts, keep
        self._max_rows, self._rows = max_rows, 0
        self._waiting: deque[Answered] = deque()
        self._filled = asyncio.Event()
        self._document, self._sample = Document(), Sample.of(Document())
        self._sums: dict[Pair, Sums] = {}
        self._values: dict[Value, Seen] = {}
        self._looks = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Shadowing:
        self._tasks = [asyncio.create_task(self._work()), asyncio.create_task(self._flush_for_ever())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(StateError):
            await self.flush()

    def chosen(self, unit: str | None, version: str) -> str | None:
        """Which version is to score a request that `version` answers, None where none is."""
        document = self._view.document
        if document is not self._document:
            self._document, self._sample = document, Sample.of(document)
        sample = self._sample
        return None if sample is None or sample.version == version or not sample.holds(unit) else sample.version

    def __call__(self, answered: Answered) -> None:
        """Offer an answer that was sent."""
        if answered.shadow is None:
            return
        rows = row_count(answered.request)
        if len(self._waiting) >= MAX_REQUESTS or (self._waiting and self._rows + rows > self._max_rows):
            self._note(answered, "dropped", Sums(dropped=1))
            return
        self._waiting.append(answered)
        self._rows += rows
        self._filled.set()

    async def flush(self) -> None:
        """Write the sums since the last time; StateError where they cannot be, and then they are kept."""
        sums, values, self._sums, self._values, self._looks = self._sums, self._values, {}, {}, 0
        if not sums:
            return

        def add(change: Transaction) -> None:
            add_sums(change, sums)
            add_values(change, values)

        try:
            await self._view.change(add)
        except StateError:
            self._merge(sums)
            self._see(values)
            raise

    async def _work(self) -> None:
        while True:
            await self._filled.wait()
            while self._waiting:
                await self._until_quiet(str(self._waiting[0].shadow))
                answered = self._waiting.popleft()
                self._rows -= row_count(answered.request)
                try:
                    await self._score(answered)
                except Exception as error:  # noqa: BLE001 - one answer is lost; the shadow must not end in silence
                    logs.event("shadow not noted", level=logging.ERROR, exc_info=error)
            self._filled.clear()

    async def _until_quiet(self, version: str) -> None:
        """Return once the version's batcher is idle and the worker has nothing else at hand, or the version is gone."""
        while (loaded := self._versions.get(version)) is not None:
            busy = loaded.batcher.is_running or loaded.batcher.queue_rows
            if not busy and self._versions.workload.drain_seconds < QUIET_SECONDS:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _score(self, answered: Answered) -> None:
        version = str(answered.shadow)
        loaded = self._versions.get(version)
        if loaded is None:
            self._note(answered, "dropped", Sums(dropped=1))
            return
        try:
            scored = await loaded.batcher.submit(answered.request._replace(explain=False))
            scores = scored.value.scores
            if len(scores) > LARGE_ROWS:
                sums = await asyncio.to_thread(agreement, answered.scores, scores, answered.top_k)
            else:
                sums = agreement(answered.scores, scores, answered.top_k)
            if self._looks < LOOKS:
                self._look_at(answered, loaded.predictor)
        except (Draining, QueueFull):
            self._note(answered, "dropped", Sums(dropped=1))
        except Exception as error:  # noqa: BLE001 - whatever a version does with a request, the shadow goes on
            if self._sums.get(_pair(answered), Sums()).failed == 0:
                logs.event("shadow failed", level=logging.WARNING, version=version, error=str(error))
            self._note(answered, "failed", Sums(failed=1))
        else:
            self._note(answered, "scored", sums, scores)

    def _note(self, answered: Answered, result: str, sums: Sums, scores: Floats | None = None) -> None:
        self._counts.shadow(str(answered.shadow), result)
        self._merge({_pair(answered): sums})
        if self._keep is not None:
            self._keep(answered, scores)

    def _look_at(self, answered: Answered, predictor: Predictor) -> None:
        """See which values of one row of the request are missing, or unknown to the version."""
        self._looks += 1
        one = predictor.encode([one_row(answered.request, random.randrange(row_count(answered.request)))])
        for feature in predictor.schema.features:
            name = feature.name
            seen = Seen(1, one.missing.get(name, 0), one.unknown.get(name, 0))
            self._see({Value(answered.experiment, predictor.version, name): seen})

    def _see(self, values: Mapping[Value, Seen]) -> None:
        for value, more in values.items():
            found = self._values.get(value, Seen(0, 0, 0))
            self._values[value] = Seen._make(a + b for a, b in zip(found, more, strict=True))

    def _merge(self, sums: Mapping[Pair, Sums]) -> None:
        for pair, more in sums.items():
            self._sums[pair] = self._sums.get(pair, Sums()).plus(more)

    async def _flush_for_ever(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            try:
                await self.flush()
            except StateError:
                pass  # the control plane tells of a lost store
            except Exception as error:  # noqa: BLE001 - what was found since is lost, what comes is not
                logs.event("shadow not written", level=logging.ERROR, exc_info=error)


def one_row(request: Request, row: int) -> Request:
    """The request of one of its rows alone."""
    if isinstance(request, RowRequest):
        return RowRequest([request.instances[row]])
    return RankRequest(request.user, [request.candidates[row]], request.context)


def keeping(ledger: Ledger) -> Keep:
    """Gives the ledger what an answer showed, with its shadow's scores, to be joined with clicks."""

    def keep(answered: Answered, shadow_scores: Floats | None) -> None:
        if answered.ticket is None or not answered.ticket.fields.kept:
            return
        items, places = answered.shown()
        shadow = () if shadow_scores is None else (answered.shadow, shadow_scores[places])
        ledger.keep(answered.ticket, items, answered.scores[places], *shadow)

    return keep


def _pair(answered: Answered) -> Pair:
    return Pair(answered.experiment, answered.epoch, answered.version, str(answered.shadow))
