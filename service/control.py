"""This worker's view of the shared state: follows the document, makes the registry match it, tells how far it is."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, TypeVar

from service import logs
from service.changes import Conflict
from service.config import Settings
from service.readiness import unready
from service.reconcile import Reconciler
from service.registry import LoadError, Registry
from service.start import fill
from service.state import Document, StateError, StateStore, Transaction, Worker
from service.state.workers import is_ready

T = TypeVar("T")

POLL_SECONDS = 0.1
BEAT_SECONDS = 1.0
RETRY_SECONDS = 5.0


class Sampled(Protocol):
    """Asked once a second to note what the process holds; `service.metrics` implements it."""

    def sample(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Seat:
    """Who this worker is among its siblings. A replacement takes connections only once its versions are ready."""

    replica: str = "local"
    worker: str = "0"
    replacement: bool = False


class Control:
    """An async context manager: inside it the worker follows the store, which the caller opens and closes."""

    def __init__(
        self, settings: Settings, store: StateStore, registry: Registry, metrics: Sampled, seat: Seat | None = None
    ) -> None:
        self._settings, self._store, self._registry, self._metrics = settings, store, registry, metrics
        self._seat = seat or Seat()
        self.document = Document()
        self.split = self.document.split()
        self.draining = False
        # Siblings that start together are ready together, once all have told so: before that a client could meet one
        # that answers 503, and a change would find it unready.
        self._together = self._seat.replacement
        self._accepting = False
        self._since = time.time()
        self._reconciler = Reconciler(registry, self._nudge)
        self._background: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._telling = asyncio.Lock()
        self._told = 0.0
        self._lost = False
        self._trouble: str | None = None
        self._behind = 0
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="state")
        self._follower: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Control:
        if not self._seat.replacement:
            await self._call(lambda: fill(self._store, self._settings))
        self.apply(await self._tell())
        self._follower = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [task for task in (self._follower, *self._background) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._reconciler.close()
        with suppress(StateError):
            await self._call(lambda: self._store.forget(self._seat.replica, self._seat.worker))
        self._threads.shutdown(wait=False)

    async def change(self, edit: Callable[[Transaction], T]) -> T:
        """Run one transaction, off the event loop. Whoever changed the document hands the new one to `apply`."""

        def run() -> T:
            with self._store.transaction() as change:
                return edit(change)

        return await self._call(run)

    async def read(self, view: Callable[[Transaction], T]) -> T:
        """Look at the store at one moment, off the event loop."""

        def run() -> T:
            with self._store.reading() as reading:
                return view(reading)

        return await self._call(run)

    async def workers(self) -> list[Worker]:
        """The living workers of all replicas."""
        return await self._call(self._store.workers)

    def apply(self, document: Document, *, restored: bool = False) -> None:
        """Take a document over, whole; one older than what is known is ignored, unless the state was `restored`."""
        if document.revision <= self.document.revision and not restored:
            return
        if restored:
            logs.event("state was set back", level=logging.WARNING, epoch=document.epoch, known=self.document.epoch)
        if document.epoch != self.document.epoch:
            self._since = time.time()
        self.document, self.split = document, document.split()
        self._nudge()

    def holding(self, version: str) -> AbstractContextManager[None]:
        """Inside, a version may be loaded here that the document does not want yet."""
        return self._reconciler.holding(version, lambda: self.document)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what nobody waits for; a failure is logged."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._ended)

    def unready(self) -> str | None:
        """Why this worker should get no requests; None where it should."""
        if self.draining:
            return "draining"
        reason = self._trouble or unready(self.document, self._registry, self._settings)
        if reason is None and not self._together:
            return "not every worker is ready yet"
        return reason

    async def accept(self) -> None:
        """Return once this worker may take connections, having said so to the others.

        A first worker may at once, and answers 503 until it is ready. A replacement waits until it is and has tried
        every version, those without weight too, unless its replica has nobody else to say why it is not.
        """
        begun = time.monotonic()
        while self._seat.replacement and (self.unready() is not None or not self._reconciler.settled(self.document)):
            if self._reconciler.settled(self.document) and not await self._has_sibling():
                break
            if time.monotonic() - begun > RETRY_SECONDS:
                begun = time.monotonic()
                self._reconciler.retry()
            await asyncio.sleep(POLL_SECONDS)
        self._accepting = True
        self.apply(await self._tell())

    async def _follow(self) -> None:
        while True:
            try:
                await self._look()
                self._trouble = None
                if self._lost:
                    logs.event("state store is back")
                    self._lost = False
            except StateError as error:
                if not self._lost:
                    logs.event("state store lost; the last split holds", level=logging.ERROR, error=str(error))
                    self._lost = True
                self._told = 0.0  # once the store is back, the others hear of this worker first
            except Exception as error:  # noqa: BLE001 - following must not end in silence, whatever it met
                if self._trouble is None:
                    logs.event("following the store failed", level=logging.ERROR, exc_info=error)
                self._trouble = f"following the state failed: {type(error).__name__}"
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()
            self._wake.clear()

    async def _look(self) -> None:
        if await self._call(self._store.revision) != self.document.revision:
            document = await self._call(self._store.document)
            # Twice in a row behind what is known is no race with a change of this worker: the state was set back.
            self._behind = self._behind + 1 if document.revision < self.document.revision else 0
            self.apply(document, restored=self._behind > 1)
        else:
            self._behind = 0
        self._reconciler.look(self.document)
        if not self._together and self.document.weights:
            self._together = await self._all_ready()
        if time.monotonic() - self._told >= BEAT_SECONDS:
            await self._tell()
            self._metrics.sample()
            self.spawn(self._registry.refresh_known())  # not awaited: a slow disk must not silence this worker

    async def _tell(self) -> Document:
        """Record how far this worker is, and give the document of that very moment.

        In one transaction: a change either is in that document or finds this worker among those it waits for.
        """
        async with self._telling:
            self._told = time.monotonic()
            row = self._row()

            def tell(change: Transaction) -> Document:
                change.tell(row)
                return change.document()

            return await self.change(tell)

    def _row(self) -> Worker:
        return Worker(
            replica=self._seat.replica,
            worker=self._seat.worker,
            pid=os.getpid(),
            accepting=self._accepting,
            epoch=self.document.epoch,
            revision=self.document.revision,
            since=self._since,
            seen=time.time(),
            states=self._reconciler.states(),
        )

    def _nudge(self) -> None:
        """Something changed here: look, and tell, now."""
        self._told = 0.0
        self._wake.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            expected = isinstance(error, LoadError | Conflict | StateError)
            trace = None if expected else error
            logs.event("background work failed", level=logging.ERROR, error=str(error), exc_info=trace)

    async def _all_ready(self) -> bool:
        siblings = [worker for worker in await self.workers() if worker.replica == self._seat.replica]
        ready = [worker for worker in siblings if all(is_ready(worker, one) for one in self.document.needed)]
        return len(ready) >= self._settings.workers

    async def _has_sibling(self) -> bool:
        return any(w.accepting and w.replica == self._seat.replica for w in await self.workers())

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
