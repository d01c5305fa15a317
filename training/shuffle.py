"""The order in which training meets its rows: seeded, and left and taken up again between any two batches.

Where the part fits into one buffer an epoch is a full shuffle. Else the part is cut into blocks of consecutive rows;
each epoch draws the blocks in a new order, reads as many as the buffer holds, each as one slice of the mapped files,
and shuffles the buffer's rows. Two rows then share a batch only if their blocks share a buffer, and with dozens of
blocks in a buffer a batch is still drawn from all over the part.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from training.ahead import Ahead, Filled
from training.batches import Batch
from training.distributed import ALONE, Group

BUFFER_BYTES = 128 << 20  # of one copy; up to three are alive while a buffer is shuffled
BLOCK_ROWS = 8192  # 1 MB at 40 columns: read from a disk at full speed


class Rows(Protocol):
    """Rows of one part, read as ranges of consecutive ones."""

    @property
    def rows(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    def read(self, start: int, end: int) -> Batch: ...

    def slices(self, size: int) -> Iterator[Batch]: ...


class Shuffle:
    """Batches of `size` rows; `shares` of values become unknown, afresh each time (see Batch.with_unknown).

    With a group each process gets its share of each batch, the same rows drawn in all of them.
    `state_dict` is right between two batches, also within an epoch; `waited` counts the seconds of an
    epoch that reading and shuffling took, or the wait for it where buffers are made `ahead`. Without `buffer_bytes`
    all rows are shuffled at once.
    """

    def __init__(
        self,
        rows: Rows,
        size: int,
        shares: tuple[list[float], list[float]],
        seed: int,
        buffer_bytes: int | None = None,
        block_rows: int = BLOCK_ROWS,
        group: Group = ALONE,
        *,
        ahead: bool = False,
    ) -> None:
        self._rows, self._size, self._shares = rows, size, shares
        self._group, self._ahead = group, ahead
        self._generator = torch.Generator().manual_seed(seed)
        # Whole batches to a block: but for the part's last one, no buffer ends in a short batch.
        self._block = size * max(1, block_rows // size)
        a_row = max(1, rows.bytes // max(1, rows.rows))
        self._per_buffer = 0  # blocks; 0 where the buffer holds all rows
        if buffer_bytes is not None and rows.bytes > buffer_bytes:
            self._per_buffer = max(1, buffer_bytes // (a_row * self._block))
        self._order: Tensor | None = None
        self._drawn = self._generator.get_state()
        self._buffer = self._batch = 0
        self.waited = 0.0

    @property
    def rows(self) -> int:
        return self._rows.rows

    def epoch(self) -> Iterator[Batch]:
        """The batches that are left of the epoch at hand, or all of a new one."""
        self._begin()
        assert self._order is not None  # just drawn
        with Ahead(self._fill, beside=self._ahead and self._per_buffer > 0) as ahead:
            while self._buffer < self._buffers():
                started = time.perf_counter()
                buffer, drawn = ahead.take(self._buffer, self._drawn)
                self.waited += time.perf_counter() - started
                if self._buffer + 1 < self._buffers():
                    ahead.begin(self._buffer + 1, drawn)
                for batch in self._batches(buffer):
                    self._batch += 1
                    yield batch
                self._drawn = drawn
                self._buffer, self._batch = self._buffer + 1, 0

    def advance(self) -> None:
        """The epoch at hand is over: the next call of `epoch` begins another."""
        self._order, self.waited = None, 0.0

    def state_dict(self) -> dict[str, Any]:
        """Plain values and tensors."""
        return {"order": self._order, "drawn": self._drawn, "buffer": self._buffer, "batch": self._batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._order, self._drawn = state["order"], state["drawn"]
        self._buffer, self._batch = int(state["buffer"]), int(state["batch"])

    def _begin(self) -> None:
        if self._order is not None:
            return
        self._generator.set_state(self._drawn)
        self._buffer = self._batch = 0
        blocks = -(-self._rows.rows // self._block)
        self._order = torch.randperm(blocks, generator=self._generator) if self._per_buffer else torch.zeros(1)
        self._drawn = self._generator.get_state()

    def _buffers(self) -> int:
        assert self._order is not None  # called within an epoch
        return -(-len(self._order) // self._per_buffer) if self._per_buffer else 1

    def _fill(self, number: int, drawn: Tensor) -> Filled:
        generator = torch.Generator()
        generator.set_state(drawn)
        rows = self._read(number).with_unknown(*self._shares, generator)
        order = torch.randperm(rows.rows, generator=generator)
        return rows.take(self._mine(order).to(rows.labels.device)), generator.get_state()

    def _mine(self, rows: Tensor) -> Tensor:
        """This process's share of each batch of a buffer's rows."""
        if self._group.size == 1:
            return rows
        whole = len(rows) // self._size * self._size
        start, end = self._group.share(self._size)
        last, rest = rows[whole:], self._group.share(len(rows) - whole)
        return torch.cat([rows[:whole].view(-1, self._size)[:, start:end].flatten(), last[slice(*rest)]])

    def _batches(self, buffer: Batch) -> Iterator[Batch]:
        """What is left of a buffer; every process gives as many batches, if need be an empty one."""
        yield from buffer.slices(self._size // self._group.size, first=self._batch)
        if self._batch < self._in_buffer():
            yield buffer.read(buffer.rows, buffer.rows)

    def _in_buffer(self) -> int:
        """How many batches the buffer at hand holds."""
        rows = self._rows.rows
        if self._per_buffer:
            assert self._order is not None  # called within an epoch
            drawn = self._order[self._buffer * self._per_buffer : (self._buffer + 1) * self._per_buffer]
            rows = sum(min(self._block, rows - int(block) * self._block) for block in drawn)
        return -(-rows // self._size)

    def _read(self, number: int) -> Batch:
        if not self._per_buffer:
            return self._rows.read(0, self._rows.rows)
        assert self._order is not None  # called within an epoch
        first = number * self._per_buffer
        starts = [int(block) * self._block for block in self._order[first : first + self._per_buffer]]
        return Batch.cat([self._rows.read(start, min(start + self._block, self._rows.rows)) for start in starts])
