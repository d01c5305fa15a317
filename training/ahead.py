"""The next buffer of rows made ready while the one at hand is trained on: a thread and a side stream of the GPU.

The computing then meets neither a read nor a copy nor a shuffle. On the CPU nothing is made ahead: the work would take
the very cores that train.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from training.batches import Batch

Filled = tuple[Batch, Tensor]  # and the random state after it
Fill = Callable[[int, Tensor], Filled]  # of the number of a buffer and the random state before it


class Ahead:
    """Calls `fill`, one buffer ahead where `beside` is set; what it gives is the same either way."""

    def __init__(self, fill: Fill, *, beside: bool) -> None:
        self._fill = fill
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ahead") if beside else None
        self._stream: torch.cuda.Stream | None = None
        if beside and torch.cuda.is_available():
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # untyped in torch
        self._next: tuple[int, Future[Filled]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def take(self, number: int, drawn: Tensor) -> Filled:
        """Buffer `number`, as made ahead or made now; the computing of this thread may use it."""
        ready, self._next = self._next, None
        if ready is None or ready[0] != number:
            return self._fill(number, drawn)
        filled = ready[1].result()
        if self._stream is not None:
            here = torch.cuda.current_stream()
            here.wait_stream(self._stream)
            for tensor in filled[0].tensors:
                tensor.record_stream(here)  # else its memory could be given away while a step still reads it
        return filled

    def begin(self, number: int, drawn: Tensor) -> None:
        """Have buffer `number` made while this thread computes."""
        if self._pool is not None:
            self._next = number, self._pool.submit(self._work, number, drawn)

    def _work(self, number: int, drawn: Tensor) -> Filled:
        if self._stream is None:
            return self._fill(number, drawn)
        with torch.cuda.stream(self._stream):  # of this thread alone; sets the device too
            return self._fill(number, drawn)
