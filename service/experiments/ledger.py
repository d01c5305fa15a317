"""The ledger of one worker: gives every prediction its id, counts what becomes of it, takes the events that come back.

    /predict    open(…) → Ticket ─ answer ─ close(ticket, status)     in memory; in the store within a second
    /feedback   take(events)                                          in the store before the answer
    reports     names(), evidence(name)

What happens at /predict belongs to the arm that was assigned, whoever answered and however it ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from service import logs
from service.config import Settings
from service.experiments.epochs import Epochs
from service.experiments.events import Judge, Judged
from service.experiments.evidence import Evidence
from service.experiments.keys import Keyring, stored_keyring
from service.experiments.reading import Reader, experiment_names
from service.experiments.recorder import Recorded, Recorder
from service.experiments.samples import Answer, Sampler
from service.experiments.tally import Tally
from service.experiments.tickets import Issuer, Ticket
from service.experiments.writing import Upkeep, write
from service.state import Document, StateError, StateStore, Transaction
from service.state.counts import CellKey

T = TypeVar("T")

FLUSH_SECONDS = 0.5
# Stored keys are read again so often, and epochs looked up anew.
REFRESH_SECONDS = 10.0
SERVER_ERROR = 500
# Requests, and events, that one worker holds before it turns more away.
MOST_INSIDE = 128
MOST_WAITING = 50_000


class Behind(Exception):
    """More events wait than will be counted soon."""


class Fed(NamedTuple):
    """What became of the events of one request."""

    judged: Judged
    recorded: Recorded


class Ledger:
    """An async context manager, used from one event loop; `now()` is in seconds since 1970."""

    def __init__(self, settings: Settings, store: StateStore, *, now: Callable[[], float] = time.time) -> None:
        self._store, self._now = store, now
        self._window = settings.attribution_hours * 3600.0
        secrets = [secret.encode() for secret in settings.secrets]
        self._fixed = Keyring(secrets) if secrets else None
        self._tally, self._sampler = Tally(), Sampler()
        self._issuer = Issuer(self._sampler, now)
        self._writes = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="feedback")
        self._reports = ThreadPoolExecutor(1, thread_name_prefix="evidence")
        self._reader = Reader(now)
        self._recorder = Recorder(store, self._writes)
        self._epochs = Epochs(self._past)
        self._judge = Judge(lambda: self._keyring, self._epochs, self._window, now)
        self._upkeep = Upkeep(self._window)
        self._flusher: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._flushed = time.monotonic()
        self._refreshed = 0.0
        self._lost = False
        self._inside = 0

    async def __aenter__(self) -> Ledger:
        self._loop = asyncio.get_running_loop()
        self._keyring = await self._loop.run_in_executor(self._writes, self._read_keys)
        self._issuer.keyring = self._keyring
        self._flusher = asyncio.create_task(self._flush_forever())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not cancelled: what is being written would be written again.
        self._ending.set()
        if self._flusher is not None:
            await self._flusher
        await self._recorder.close()
        with suppress(StateError):
            await self.flush()
        for thread in (self._writes, self._reads, self._reports):
            thread.shutdown(wait=False)

    def open(
        self, document: Document, version: str, reason: str, unit: str | None, *, rows: bool, shadowed: bool = False
    ) -> Ticket:
        """See `Issuer.open`."""
        return self._issuer.open(document, version, reason, unit, rows=rows, shadowed=shadowed)

    def close(self, ticket: Ticket, status: int) -> None:
        """How a prediction was answered. What was the client's fault, or was turned away, counts for nothing."""
        if status == 200 or status >= SERVER_ERROR:
            fields = ticket.fields
            key = CellKey(fields.epoch, ticket.version, fields.reason, fields.sub)
            self._tally.count(key, ticket.unit, failed=status >= SERVER_ERROR)

    def keep(
        self,
        ticket: Ticket,
        items: Sequence[object] | None,
        scores: npt.NDArray[np.float32],
        shadow_version: str | None = None,
        shadow_scores: npt.NDArray[np.float32] | None = None,
    ) -> None:
        """Keep the scores of an answer to be joined with its events, where `ticket.fields.kept`.

        `items` are the item ids (None in row form) and `scores` (P,) those of the answering version, in one order;
        `shadow_scores` (P,) another version's for the same items. To be called once a ticket, with or without them.
        """
        fields = ticket.fields
        if fields.kept:
            draw = fields.nonce >> 32
            said = (ticket.body, ticket.epoch.experiment, ticket.version, fields.at, draw, ticket.unit)
            self._sampler.keep(Answer(*said, items, scores, shadow_version, shadow_scores))

    async def take(self, read: Callable[[], list[object]]) -> Fed:
        """Judge the events that `read` gives, and count those that were never counted: they are in the store when this
        returns. Off the event loop; raises what `read` does, Behind, StateError."""
        waiting = self._recorder.events_waiting
        if self._inside >= MOST_INSIDE or waiting >= MOST_WAITING:
            raise Behind(f"{waiting} events of {self._inside} requests wait to be counted")
        self._inside += 1
        try:
            judged = await self._loop.run_in_executor(self._reads, lambda: self._judge(read()))
            return Fed(judged, await self._recorder.record(judged.events))
        finally:
            self._inside -= 1

    async def names(self) -> list[str]:
        """Every experiment that there was, in the order of their names."""
        return await self._loop.run_in_executor(self._reports, self._read, experiment_names)

    async def evidence(self, name: str) -> Evidence | None:
        """All that was counted of an experiment; None where there was none of that name."""
        return await self._loop.run_in_executor(self._reports, self._read, lambda view: self._reader(view, name))

    async def flush(self) -> None:
        """Write what happened at /predict. Raises StateError; then it is kept for the next time."""
        seconds, self._flushed = time.monotonic() - self._flushed, time.monotonic()
        taken = self._tally.take(self._sampler.take(seconds))
        try:
            done = await self._loop.run_in_executor(self._writes, write, self._store, taken)
        except Exception:
            self._tally.give_back(taken)
            raise
        self._tally.written(done.units)
        for experiment, halvings in done.answers.items():
            self._sampler.halved(experiment, halvings)

    async def _flush_forever(self) -> None:
        while not self._ending.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._ending.wait()
            try:
                await self.flush()
                await self._loop.run_in_executor(self._writes, self._upkeep.step, self._store, self._now())
                await self._refresh()
                self._lost = False
            except Exception as error:  # noqa: BLE001 - counting must not end in silence, whatever it met
                if not self._lost:
                    trace = None if isinstance(error, StateError) else error
                    logs.event("counts not written", level=logging.ERROR, error=str(error), exc_info=trace)
                self._lost = True

    async def _refresh(self) -> None:
        if time.monotonic() - self._refreshed < REFRESH_SECONDS:
            return
        self._refreshed = time.monotonic()
        self._issuer.keyring = self._keyring = await self._loop.run_in_executor(self._writes, self._read_keys)
        # In the thread that uses it.
        await self._loop.run_in_executor(self._reads, self._epochs.forget)

    def _read_keys(self) -> Keyring:
        if self._fixed is not None:
            return self._fixed
        with self._store.transaction() as change:
            return stored_keyring(change, self._now())

    def _past(self, epoch: int) -> tuple[Mapping[str, Any], float] | None:
        row = self._read(lambda view: view.past(epoch))
        return None if row is None else (row.traffic, row.at)

    def _read(self, view: Callable[[Transaction], T]) -> T:
        with self._store.reading() as reading:
            return view(reading)
