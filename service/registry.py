"""The versions of this worker: loaded one at a time, drained before they go."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Protocol, TypeVar

from service import logs
from service.batching import Batcher, Load
from service.config import Settings
from service.opening import Alone, Computing, Opening
from service.scorer import Counted, Request, Scored, Scorer, row_count
from service.scoring.files import ArtifactError
from service.scoring.known import KnownNames, folder_state
from service.scoring.predictor import Predictor
from service.workers.memory import give_back

T = TypeVar("T")


# What a load does in this process yields to the thread that answers (the niceness of a thread, on Linux).
LOADING_NICENESS = 10


class LoadError(Exception):
    """A version that cannot be loaded: one plain line that says why."""


class Numbers(Protocol):
    """What the registry tells of its versions; `service.metrics` implements it."""

    def version_loaded(self, version: str, features: list[str]) -> None: ...
    def version_unloaded(self, version: str) -> None: ...
    def load_seconds(self, version: str, seconds: float) -> None: ...
    def batch(self, version: str, rows: int, queue_seconds: list[float], model_seconds: float) -> None: ...
    def queue_rows(self, version: str, rows: int) -> None: ...
    def counted(self, version: str, counted: Counted) -> None: ...


@dataclass(frozen=True, slots=True)
class Loaded:
    """A version that is ready: what scores, and the queue in front of it."""

    version: str
    predictor: Predictor
    batcher: Batcher[Request, Scored]


class Registry:
    """An async context manager; used from one event loop, the loading itself runs in a thread of its own."""

    def __init__(
        self, settings: Settings, metrics: Numbers, *, device: str = "cpu", opening: Opening | None = None
    ) -> None:
        self._settings, self._metrics = settings, metrics
        computing = Computing(device, settings.precision, settings.precision_tolerance, settings.max_rows)
        self._opening = opening or Alone(settings.artifacts, computing)
        self._ready: dict[str, Loaded] = {}
        self._states: dict[str, tuple[str, str | None]] = {}
        self._draining: dict[str, asyncio.Task[None]] = {}
        self._loads = asyncio.Lock()
        self.workload = Load(settings.budget_ms / 1e3)
        # One thread: TorchScript's loader keeps a registry that concurrent loads have corrupted.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="load", initializer=_give_way)
        # Not the loads' thread: names must not wait for minutes of loading.
        self._names_thread = ThreadPoolExecutor(1, thread_name_prefix="names", initializer=_give_way)
        self._scanning = False
        self._folder_changed: list[tuple[str, int]] | None = None
        self.known = KnownNames.scan(settings.artifacts)

    async def __aenter__(self) -> Registry:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Whoever was waited for has been answered by now; what still runs has nobody to answer.
        await asyncio.gather(*(self._unload(version, 0.5) for version in list(self._ready)))
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._names_thread.shutdown(wait=False, cancel_futures=True)

    def get(self, version: str) -> Loaded | None:
        """The version where it is ready, else None."""
        return self._ready.get(version)

    def states(self) -> Mapping[str, tuple[str, str | None]]:
        """(loading | ready | unloading | failed, why it failed) of every version that was touched."""
        return dict(self._states)

    def catalog(self, version: str) -> int:
        """The catalog revision of a version that is ready; 0 where it is not, or has no catalog."""
        loaded = self._ready.get(version)
        return 0 if loaded is None or loaded.predictor.catalog is None else loaded.predictor.catalog.revision

    async def load(self, version: str, revision: int = 0) -> Loaded:
        """Load a version with a catalog revision, or give the one that is ready, whatever its catalog. LoadError where
        it cannot be, which changes no other."""
        async with self._loads:
            if version in self._draining:
                await self._draining[version]
            found = self._ready.get(version)
            return found if found is not None else await self._load(version, revision)

    async def switch_catalog(self, version: str, revision: int) -> None:
        """Give a version that is ready another catalog revision: a request sees the old or the new one whole.
        LoadError where it cannot be had; then the old one stays."""
        async with self._loads:
            loaded, begun = self._ready.get(version), time.monotonic()
            if loaded is None:
                raise LoadError(f"version '{version}' is not ready")
            if self.catalog(version) == revision:
                return
            work = partial(self._opening.catalog, version, loaded.predictor, revision)
            try:
                loaded.predictor.catalog = await self._in_thread(version, work)
            except LoadError as error:
                why = str(error)
                logs.event("catalog refused", level=logging.ERROR, version=version, revision=revision, error=why)
                raise
            seconds = round(time.monotonic() - begun, 3)
            logs.event("catalog switched", version=version, revision=revision, seconds=seconds)

    async def unload(self, version: str) -> None:
        """Take no new requests for a version, answer those that wait, let it go. Nothing where it is not ready."""
        await self._unload(version, self._settings.drain_seconds)

    def forget(self, version: str) -> None:
        """Drop the memory of a failed load."""
        if self._states.get(version, ("", None))[0] == "failed":
            del self._states[version]

    async def refresh_known(self) -> None:
        """Learn the feature names of versions that were published since; returns at once where that is under way."""
        if self._scanning:
            return
        self._scanning = True
        try:
            self.known = await asyncio.get_running_loop().run_in_executor(self._names_thread, self._scan)
        finally:
            self._scanning = False

    async def _unload(self, version: str, seconds: float) -> None:
        loaded = self._ready.pop(version, None)
        if loaded is None:
            return
        self._states[version] = ("unloading", None)
        task = self._draining[version] = asyncio.ensure_future(self._drain(loaded, seconds))
        await asyncio.shield(task)

    async def _load(self, version: str, revision: int) -> Loaded:
        self._states[version] = ("loading", None)
        begun = time.monotonic()
        try:
            predictor = await self._in_thread(
                version, partial(self._opening.version, version, revision, beside=bool(self._ready))
            )
        except LoadError as error:
            self._states[version] = ("failed", str(error))
            logs.event("version failed to load", level=logging.ERROR, version=version, error=str(error))
            raise
        seconds = time.monotonic() - begun
        features = [feature.name for feature in predictor.schema.features]
        self._metrics.version_loaded(version, features)
        self._metrics.load_seconds(version, seconds)
        loaded = self._ready[version] = Loaded(version, predictor, self._batcher(version, predictor))
        self._states[version] = ("ready", None)
        by = predictor.computed_by
        logs.event("version ready", version=version, seconds=round(seconds, 3), computed_by=by)
        return loaded

    async def _in_thread(self, version: str, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, version, work)

    @staticmethod
    def _guarded(version: str, work: Callable[[], T]) -> T:
        """Whatever opening files raises is a LoadError."""
        try:
            return work()
        except ArtifactError as error:
            raise LoadError(str(error)) from error
        except Exception as error:
            logs.event("version raised while loading", level=logging.ERROR, version=version, exc_info=error)
            raise LoadError(f"{type(error).__name__}: {error}") from error

    def _batcher(self, version: str, predictor: Predictor) -> Batcher[Request, Scored]:
        return Batcher(
            self._scorer(version, predictor),
            rows=row_count,
            max_batch_rows=self._settings.max_rows,
            max_queue_rows=self._settings.queue_rows,
            load=self.workload,
            inline=predictor.device == "cpu",
            on_batch=partial(self._metrics.batch, version),
            on_queue=partial(self._metrics.queue_rows, version),
            name=f"score {version}",
        )

    def _scorer(self, version: str, predictor: Predictor) -> Scorer:
        ignore, count = self._settings.unknown_features == "ignore", partial(self._metrics.counted, version)
        return Scorer(predictor, lambda: self.known, ignore_unknown=ignore, count=count)

    async def _drain(self, loaded: Loaded, seconds: float) -> None:
        version = loaded.version
        await loaded.batcher.close(seconds=seconds)
        del loaded
        await asyncio.get_running_loop().run_in_executor(self._thread, self._let_go, version)
        self._metrics.version_unloaded(version)
        self._states.pop(version, None)
        del self._draining[version]
        logs.event("version unloaded", version=version)

    def _let_go(self, version: str) -> None:
        self._opening.close(version)
        gc.collect(1)
        give_back()

    def _scan(self) -> KnownNames:
        try:
            changed = folder_state(self._settings.artifacts)
        except OSError:
            return self.known
        if changed == self._folder_changed:
            return self.known
        self._folder_changed = changed
        return KnownNames.scan(self._settings.artifacts)


def _give_way() -> None:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOADING_NICENESS)
