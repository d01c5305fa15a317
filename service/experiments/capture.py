"""Sampled requests and their answers as Parquet files: what training should see is what was served.

    offer ──▶ waiting rows ──▶ a thread, every few seconds ──▶ .part file ──▶ renamed once a minute
       └─ full: dropped and counted      └─ cannot be written, or the folder is full: dropped and counted

An answer never waits for it. A worker that is killed loses the file that it had not closed: a minute at most.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from service import logs
from service.experiments.answered import Answered
from service.ids import new_id
from service.scorer import row_count
from service.scoring.predictor import RowRequest

SCHEMA = pa.schema(
    [
        ("prediction_id", pa.string()),
        ("at", pa.float64()),  # when it was answered, seconds since 1970
        ("unit", pa.string()),  # hashed; null where there was none
        ("experiment", pa.string()),
        ("version", pa.string()),
        ("epoch", pa.int64()),
        ("reason", pa.string()),
        ("propensity", pa.float64()),
        ("item", pa.string()),  # the item's id, or the row's index
        ("shown", pa.bool_()),  # whether the answer had it: with top_k the best alone
        ("features", pa.string()),  # as sent, in JSON
        ("score", pa.float32()),
    ]
)
MOST_ROWS = 20_000  # that wait to be written
MOST_BYTES = 4 * 2**30  # of the folder
FLUSH_SECONDS = 5.0
FILE_SECONDS = 60.0


class Counts(Protocol):
    """Where results are counted: captured, dropped or failed."""

    def captured(self, result: str, requests: int) -> None: ...


class Capture:
    """The capture of one worker; an async context manager. `clock` gives seconds since 1970."""

    def __init__(
        self, folder: Path, fraction: float, counts: Counts, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._folder, self._fraction, self._counts, self._clock = folder, fraction, counts, clock
        self._waiting: list[tuple[float, Answered]] = []
        self._rows = 0
        self._file: _File | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="capture")
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    async def __aenter__(self) -> Capture:
        self._task = asyncio.create_task(self._flush_for_ever())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.flush(last=True)
        self._thread.shutdown(wait=False)

    def __call__(self, answered: Answered) -> None:
        """Offer an answer that was sent."""
        if random.random() >= self._fraction:
            return
        rows = row_count(answered.request)
        if self._waiting and self._rows + rows > MOST_ROWS:
            self._counts.captured("dropped", 1)
            return
        self._waiting.append((self._clock(), answered))
        self._rows += rows

    async def flush(self, *, last: bool = False) -> None:
        """Write what waits; `last` closes the file too."""
        waiting, self._waiting, self._rows = self._waiting, [], 0
        result = await asyncio.get_running_loop().run_in_executor(self._thread, self._write, waiting, last)
        if waiting:
            self._counts.captured(result, len(waiting))

    async def _flush_for_ever(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    def _write(self, waiting: Sequence[tuple[float, Answered]], last: bool) -> str:
        """The result of all that waited."""
        try:
            if waiting:
                if self._file is None and folder_bytes(self._folder) > MOST_BYTES:
                    raise OSError(f"{self._folder} holds more than {MOST_BYTES / 2**30:.0f} GiB")
                self._file = self._file or _File(self._folder, self._clock())
                self._file.write(waiting)
            if self._file is not None and (last or self._clock() - self._file.begun >= FILE_SECONDS):
                file, self._file = self._file, None
                file.close()
        except (OSError, pa.ArrowException) as error:
            self._file = None
            if not self._failing:
                logs.event("capture failed", level=logging.ERROR, error=str(error))
            self._failing = True
            return "failed"
        self._failing = False
        return "captured"


class _File:
    """One file on its way; it appears under its own name once it is whole."""

    def __init__(self, folder: Path, now: float) -> None:
        self.begun = now
        self._path = folder / f"captured-{int(now)}-{new_id()[:12]}.parquet"
        self._part = self._path.with_suffix(".part")
        self._writer = pq.ParquetWriter(self._part, SCHEMA, compression="zstd")

    def write(self, waiting: Sequence[tuple[float, Answered]]) -> None:
        rows = [row for at, answered in waiting for row in rows_of(answered, at)]
        self._writer.write_table(pa.Table.from_pylist(rows, SCHEMA))

    def close(self) -> None:
        self._writer.close()
        self._part.rename(self._path)


def rows_of(answered: Answered, at: float) -> Iterator[dict[str, Any]]:
    """A row for each that was scored, with the features that the request gave it."""
    common = {
        "prediction_id": answered.prediction_id,
        "at": at,
        "unit": None if answered.unit is None else hashed(answered.unit),
        "experiment": answered.experiment,
        "version": answered.version,
        "epoch": answered.epoch,
        "reason": answered.reason,
        "propensity": answered.propensity,
    }
    shown = set(answered.shown()[1].tolist())
    for n, ((item, features), score) in enumerate(zip(_sent(answered), answered.scores.tolist(), strict=True)):
        yield {**common, "item": item, "shown": n in shown, "features": _json(features), "score": score}


def hashed(unit: str) -> str:
    """16 hexadecimal digits that stand for a unit, the same in every capture."""
    return hashlib.sha256(b"capture\0" + unit.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def folder_bytes(folder: Path) -> int:
    """What the files of a folder take."""
    total = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another worker's, renamed meanwhile
            total += path.stat().st_size
    return total


def _sent(answered: Answered) -> Iterator[tuple[str, dict[str, Any]]]:
    """(item, features) of each row."""
    request = answered.request
    if isinstance(request, RowRequest):
        for n, row in enumerate(request.instances):
            yield str(n), dict(row)
        return
    key = answered.item_key or "item"
    both = {**request.context, **request.user}
    for candidate in request.candidates:
        own = candidate if isinstance(candidate, dict) else {key: candidate}
        yield str(own.get(key)), {**both, **own}


def _json(features: dict[str, Any]) -> str:
    try:
        return orjson.dumps(features).decode()
    except TypeError:  # an integer beyond 64 bits
        return json.dumps(features)
