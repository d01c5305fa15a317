"""Rows of embedding tables for one batch: which ones it touches, what they hold, and their summed gradients.

`_rows.c` does it where a compiler was at hand at installation; without it autograd does (model.py, loop.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

try:
    from training import _rows
except ImportError:  # installed where there was no compiler
    _rows = None  # type: ignore[assignment]  # the one place that knows whether it is there
native = _rows

_Plan: TypeAlias = npt.NDArray[np.int64]
_MEAN = 5  # the field of _rows.c's Column


@dataclass(frozen=True, slots=True)
class Place:
    """Where one column of a batch enters a table: its number among the look-ups, the table's row of its id 0, and the
    first of its floats in a row's gradient."""

    column: int
    start: int
    at: int = 0


class Lookups:
    """What B rows look up: id columns (B, C), int32 or int64, then ragged ones as values and offsets (B + 1,).

    With `chosen`, of the id columns those alone, numbered anew.
    The tensors must live as long as this does: it holds their addresses.
    """

    def __init__(
        self, ids: Tensor, ragged: Sequence[tuple[Tensor, Tensor]], chosen: Sequence[int] | None = None
    ) -> None:
        self.rows = ids.size(0)
        self._threads = torch.get_num_threads()
        wide, step = int(ids.dtype == torch.int64), ids.element_size() * ids.stride(1)
        columns = range(ids.size(1)) if chosen is None else chosen
        plan = [(ids.data_ptr() + n * step, wide, ids.stride(0), self.rows, 0, 0) for n in columns]
        kept: list[Tensor] = [ids]
        for values, offsets in ragged:
            values, offsets = values.contiguous(), offsets.contiguous()
            kept += [values, offsets]
            long = int(values.dtype == torch.int64)
            plan.append((values.data_ptr(), long, 1, values.numel(), offsets.data_ptr(), 0))
        self._kept = kept
        self._plan: _Plan = np.array(plan, np.int64).reshape(-1, 6)
        self._firsts = np.concatenate([[0], np.cumsum(self._plan[:, 3])])
        self._found: _Plan | None = None

    def gather(self, table: Tensor, places: Sequence[Place], out: Tensor) -> None:
        """Write the table's rows of some id columns side by side into out (B, columns · D), rows apart as they are."""
        if places:
            columns, starts = self._of(places)
            where = (table.data_ptr(), table.size(1), out.data_ptr(), out.stride(0))
            native.gather(columns.ctypes.data, starts.ctypes.data, len(places), self.rows, *where, self._threads)

    def weigh(self, weights: Tensor, places: Sequence[Place], out: Tensor) -> None:
        """Add to out (B,) the weights of some id columns."""
        if places:
            columns, starts = self._of(places)
            where = (weights.data_ptr(), out.data_ptr())
            native.weigh(columns.ctypes.data, starts.ctypes.data, len(places), self.rows, *where, self._threads)

    def sums(self, places: Sequence[Place], grad: Tensor, dim: int, mean: bool) -> tuple[Tensor, Tensor]:
        """Distinct rows (U,) of one table that the batch touches, and their summed gradients (U, D).

        `grad` (B, ·) holds each row's gradients at the places' `at`; with `mean` a ragged column's ids share a row's.
        """
        found = self._distinct()
        columns, starts = self._of(places)
        columns[:, _MEAN] = int(mean)
        chosen = np.array([place.column for place in places], np.int64)
        counts, firsts = found[chosen], self._firsts[chosen]
        plan = np.empty((len(places), 6), np.int64)
        plan[:, 0] = self._inverse.data_ptr() + 4 * firsts
        plan[:, 1] = self._ids.data_ptr() + 8 * firsts
        plan[:, 2], plan[:, 3], plan[:, 4] = counts, starts, [place.at for place in places]
        plan[:, 5] = np.cumsum(counts) - counts
        total = int(counts.sum())
        rows, sums = torch.empty(total, dtype=torch.int64), torch.empty(total, dim)
        where = (grad.data_ptr(), grad.stride(0), dim, sums.data_ptr(), rows.data_ptr())
        native.sums(columns.ctypes.data, len(places), plan.ctypes.data, *where, self._threads)
        return rows, sums

    def _of(self, places: Sequence[Place]) -> tuple[_Plan, _Plan]:
        return self._plan[[place.column for place in places]], np.array([place.start for place in places], np.int64)

    def _distinct(self) -> _Plan:
        if self._found is None:
            total, found = int(self._firsts[-1]), np.zeros(len(self._plan), np.int64)
            self._inverse, self._ids = torch.empty(total, dtype=torch.int32), torch.empty(total, dtype=torch.int64)
            where = (self._inverse.data_ptr(), self._ids.data_ptr(), found.ctypes.data)
            native.distinct(self._plan.ctypes.data, len(self._plan), *where, self._threads)
            self._found = found
        return self._found


def give(table: nn.Parameter, rows: Tensor, sums: Tensor) -> None:
    """Add to the gradient of a table what some of its distinct rows (U,) get: sums (U, D).

    The gradient says that it is coalesced where no row is twice in it, though they may stand in any order.
    """
    once = table.grad is None
    if table.grad is not None:
        rows = torch.cat([table.grad._indices()[0], rows])
        sums = torch.cat([table.grad._values(), sums])
    table.grad = torch.sparse_coo_tensor(rows[None], sums, table.shape, is_coalesced=once, check_invariants=False)
