"""What the service counts: one `Metrics` a worker, right when added up over all of them.

`series.py` defines every series; `cells.py` holds the numbers where the other workers can read them; `scrape.py` adds
them up. Nothing here knows HTTP.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import psutil

from service.metrics.cells import Cell, Cells, forget_worker
from service.metrics.scrape import Document, exposition
from service.metrics.series import (
    CODES_OF_NONE,
    NONE,
    UNLISTED,
    EventSeries,
    ModelSeries,
    VersionSeries,
    WorkerSeries,
    gpu_memory,
)


class Counted(Protocol):
    """What one batch of a version held; `service.scorer` makes it. Scores (B,), all finite, are B rows."""

    @property
    def scores(self) -> npt.NDArray[np.float32]: ...
    @property
    def unknown(self) -> Mapping[str, int]: ...
    @property
    def missing(self) -> Mapping[str, int]: ...
    @property
    def ignored(self) -> Mapping[str, int]: ...
    @property
    def unlisted(self) -> int: ...


__all__ = ["NONE", "UNLISTED", "Metrics", "forget_worker"]


class Metrics:
    """Counts for one worker. `folder` is shared by the workers of one service and empty at its start; without one, the
    worker stands alone and keeps its files in a folder that `close` removes.

    `gpu_memory()` gives bytes held by device name. Methods may be called from any thread.
    """

    def __init__(self, folder: Path | None = None, *, gpu_memory: Callable[[], Mapping[str, int]] = dict) -> None:
        self._owns_folder = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="twinrank-metrics-")) if folder is None else folder
        self._cells = Cells(self.folder, os.getpid())
        self._worker = WorkerSeries.make(self._cells)
        self._none = VersionSeries.make(self._cells, NONE, CODES_OF_NONE)
        refused = self._worker.rejected["queue_full"], self._none.requests_of("429")
        self._refusal = (*refused, self._none.request_seconds.bucket(0.0))
        self._models: dict[str, ModelSeries] = {}
        self._events: dict[str, EventSeries] = {}
        self._gpu_memory, self._gpu_cells = gpu_memory, dict[str, Cell]()
        self._process = psutil.Process()
        self._cpu_seen = 0.0
        self._worker.workers.set(1)
        self.sample()

    def __enter__(self) -> Metrics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends this worker's part: its gauges go."""
        self._cells.close()
        forget_worker(self.folder, os.getpid())
        if self._owns_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def version_loaded(self, version: str, features: Iterable[str]) -> None:
        """The version is ready here; all its series stand from now on."""
        if version not in self._models:
            self._models[version] = ModelSeries.make(self._cells, version, tuple(features))
            self._events_of(version)
        self._models[version].ready.set(1)

    def version_unloaded(self, version: str) -> None:
        """The version is gone here; its counts stay."""
        if version in self._models:
            self._models[version].ready.set(0)
            self._models[version].queue_rows.set(0)

    def load_seconds(self, version: str, seconds: float) -> None:
        """How long the load of a version took that `version_loaded` has named."""
        self._models[version].load_seconds.set(seconds)

    def request(self, version: str, code: int, seconds: float) -> None:
        """One request answered with `code` by `version`; NONE, or a version never loaded here, counts as none."""
        model = self._models.get(version)
        series = self._none if model is None else model.answers
        series.requests_of(str(code)).inc()
        series.request_seconds.observe(seconds)

    def in_flight(self, change: int) -> None:
        """One request more (1) or less (-1) is being answered."""
        self._worker.in_flight.inc(change)

    def rejected(self, reason: str) -> None:
        """`reason` is one of series.REASONS."""
        self._worker.rejected[reason].inc()

    def turned_away(self) -> None:
        """One request refused at once, by no version, as `rejected` and `request` would count it: there may be many."""
        for cell in self._refusal:
            cell.inc()

    def assignment(self, version: str, reason: str) -> None:
        self._models[version].assignments[reason].inc()

    def captured(self, result: str, requests: int) -> None:
        """`result` is one of series.CAPTURED."""
        self._worker.captured[result].inc(requests)

    def shadow(self, version: str, result: str) -> None:
        """`result` is one of series.SHADOWED; a version never loaded here has no series."""
        if version in self._models:
            self._models[version].shadowed[result].inc()

    def batch(self, version: str, rows: int, queue_seconds: Sequence[float], model_seconds: float) -> None:
        """One batch ran: its rows, how long each of its requests had waited, how long it took."""
        model = self._models[version]
        model.batch_rows.observe(rows)
        model.model_seconds.observe(model_seconds)
        model.queue_seconds.observe_each(queue_seconds)

    def queue_rows(self, version: str, rows: int) -> None:
        self._models[version].queue_rows.set(rows)

    def counted(self, version: str, counted: Counted) -> None:
        """What one batch held; a feature's name must be one that some version knows."""
        model = self._models[version]
        model.rows.inc(len(counted.scores))
        model.score.observe_all(counted.scores)
        for names in (counted.unknown, counted.ignored):
            for feature, count in names.items():
                model.unknown_of(feature).inc(count)
        if counted.unlisted:
            model.unknown_of(UNLISTED).inc(counted.unlisted)
        for feature, count in counted.missing.items():
            model.missing_of(feature).inc(count)

    def feedback(self, results: Mapping[str, int], impressions: Mapping[str, int], clicks: Mapping[str, int]) -> None:
        """One request to /feedback: its events by what became of them, and those accepted by version."""
        for result, count in results.items():
            if count:
                self._worker.feedback[result].inc(count)
        # A version that is not loaded here is no client's word: its name was read from an id that was signed here.
        for version, count in impressions.items():
            self._events_of(version).impressions.inc(count)
        for version, count in clicks.items():
            self._events_of(version).clicks.inc(count)

    def sample(self) -> None:
        """Notes what this process holds and has used. Called every second or so: what a killed worker had used since
        is lost."""
        cpu = sum(self._process.cpu_times()[:2])
        self._worker.cpu.inc(cpu - self._cpu_seen)
        self._cpu_seen = cpu
        self._worker.resident.set(self._process.memory_info().rss)
        for device, held in self._gpu_memory().items():
            if device not in self._gpu_cells:
                self._gpu_cells[device] = gpu_memory(self._cells, device)
            self._gpu_cells[device].set(held)

    def _events_of(self, version: str) -> EventSeries:
        series = self._events.get(version)
        if series is None:
            series = self._events[version] = EventSeries.make(self._cells, version)
        return series

    def render(
        self, document: Document | None, accept: str = "", report: Mapping[str, Any] | None = None
    ) -> tuple[bytes, str]:
        """(body, content type) of a scrape, over all workers; `accept` is the request's Accept header, `report` that of
        the running experiment.

        Reads files: to be called off the event loop.
        """
        self.sample()
        return exposition(self.folder, document, self._models, accept, report)
