"""A bar for what takes its time before training: rows of a pass over the data, on a terminal; a line when done."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import Self

from tqdm import tqdm

log = logging.getLogger("training")

_TOLD = 2.0  # seconds; a shorter pass is not worth a line


class Bar:
    """Counts the rows of one pass; `total` is None where nobody knows it yet."""

    def __init__(self, name: str, total: int | None) -> None:
        self._name, self._rows, self._started = name, 0, time.perf_counter()
        shown = sys.stderr.isatty()
        self._bar = tqdm(desc=name, total=total, unit=" rows", unit_scale=True, disable=not shown, leave=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
        seconds = time.perf_counter() - self._started
        if kind is None and seconds > _TOLD:
            log.info("%s: %d rows in %.1f s (%.0f rows/s)", self._name, self._rows, seconds, self._rows / seconds)

    def add(self, rows: int) -> None:
        self._rows += rows
        self._bar.update(rows)
