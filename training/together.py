"""Processes of one machine that learn from one batch: tables in memory that all share, columns shared out.

Each process takes its rows forward and back. Then each sees all rows' ids and gradients of its own columns, sums them
up and steps those columns' rows, which are nobody else's: no row is summed, stepped or sent twice, and a table's sums
are taken in the order of the batch's rows, as one process takes them. Layers' gradients are added up by all in one
order, so that weights are equal to the last bit. Processes meet twice a step, and gloo carries nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from training.backprop import Backprop
from training.batches import Batch
from training.columns import Columns, tables_of
from training.distributed import Group
from training.errors import FitError
from training.model import WideDeep
from training.optimizers import RowOptimizer
from training.rows import Lookups, give, native
from training.segment import Segment, Spec, bytes_of

_APART = 8  # int64 from one process's number of meetings to the next, as _meeting.c has it
_Ragged = list[tuple[Tensor, Tensor]]  # values and offsets of each ragged column


class Together(Backprop):
    """What learns a batch (see Backprop) and adds gradients up (see distributed.Exchange), in one."""

    def __init__(self, model: WideDeep, size: int, like: Batch, group: Group, optimizers: Sequence[Optimizer]) -> None:
        super().__init__(model, size, like)
        self._group, self._each = group, size // group.size
        self._rows, self._meetings = 0, 0
        self._kept: list[_Ragged] = []
        self._steppers = [one for one in optimizers if isinstance(one, RowOptimizer)]
        self._tables = tables_of(model, self._places)
        self._flat_of = [p for p in model.parameters() if p.numel() and not any(p is one for one in self._tables)]
        whole = [weight for weight in self._tables if any(one.is_whole(weight) for one in self._steppers)]
        self._mine = Columns.of(self._tables, group.rank, group.size, size, whole)
        self._dtypes = [*(one.dtype for one in like.bag_values), *(torch.int64 for _ in model.wide.cross_starts)]
        count = group.size
        self._specs: list[Spec] = [
            ((count, _APART), torch.int64),
            ((count, 1 + len(self._dtypes)), torch.int64),
            ((count, 1 + sum(one.numel() for one in self._flat_of)), torch.float32),
            ((size, self._places.width), torch.float32),
            ((size, like.ids.size(1)), like.ids.dtype),
            ((size, 1), torch.float32),
        ]

    @classmethod
    def joined(
        cls, model: WideDeep, size: int, like: Batch, group: Group, optimizers: Sequence[Optimizer]
    ) -> Together | None:
        """None where a group is not on one machine, or its batches do not learn by hand; all processes call it."""
        if not all(group.gather_objects(Backprop.of(model, size, like) is not None)):
            return None
        made = cls(model, size, like, group, optimizers)
        return made if made._open() else None

    def _open(self) -> bool:
        """Move tables and their state into memory that all processes share; False where there is none."""
        private = self._shared()
        specs = [*self._specs, *((tuple(one.shape), one.dtype) for one in private)]
        home = Segment.opened(self._group, 0, bytes_of(specs))
        areas = [Segment.opened(self._group, rank, 0) for rank in range(self._group.size)] if self._dtypes else []
        if home is None or any(one is None for one in areas):
            return False
        self._home, self._areas = home, [one for one in areas if one is not None]
        home.hold(self._group.rank)
        self._group.gather_objects(None)  # all hold on
        found = home.tensors(specs)
        self._numbers, self._counts, self._flat, self._all_x, self._all_ids, self._all_grads = found[: len(self._specs)]
        if self._group.first:
            for shared, own in zip(found[len(self._specs) :], private, strict=True):
                shared.copy_(own)
        self._meet()
        self._put(found[len(self._specs) :])
        for optimizer in self._steppers:
            optimizer.parts = {weight: rows for weight, rows in self._mine.rows.items() if optimizer.has(weight)}
        return True

    def close(self) -> None:
        """Give each process tables of its own again."""
        self._put([one.clone() for one in self._shared()])
        for optimizer in self._steppers:
            optimizer.parts = {}

    def _shared(self) -> list[Tensor]:
        """All tables, then their state in its order."""
        states = [one.prepared(weight) for one in self._steppers for weight in self._tables if one.has(weight)]
        return [*(weight.data for weight in self._tables), *(tensor for state in states for tensor in state.values())]

    def _put(self, tensors: Sequence[Tensor]) -> None:
        found = iter(tensors)
        for weight in self._tables:
            weight.data = next(found)
        for optimizer in self._steppers:
            for weight in self._tables:
                if optimizer.has(weight):
                    optimizer.state[weight] |= {name: next(found) for name in optimizer.slots}

    # ---- a step: learn, add, the optimizers, done

    def _room(self, rows: int) -> Tensor:
        start = self._group.rank * self._each + self._rows
        return self._all_x[start : start + rows]

    def _give(self, batch: Batch, lookups: Lookups, ragged: _Ragged, x: Tensor, grad: Tensor) -> None:
        """Leave for `add` what it takes to give the tables their gradients; x is where it is."""
        start = self._group.rank * self._each + self._rows
        rows = slice(start, start + batch.rows)
        self._all_ids[rows].copy_(batch.ids)
        self._all_grads[rows, 0].copy_(grad)
        self._kept.append(ragged)
        self._rows += batch.rows

    def add(self, flag: float) -> float:
        """Give parameters the gradients of all rows, tables those of this process's columns alone; returns the sum of
        `flag`. Nothing of the tables may change before, nor be read before `done`."""
        mine = [torch.zeros_like(one) if one.grad is None else one.grad for one in self._flat_of]
        row = self._flat[self._group.rank]
        torch.cat([one.flatten() for one in mine], out=row[:-1])
        row[-1] = flag
        self._leave_ragged()
        self._meet()
        sizes = [one.numel() for one in mine]
        flat = self._flat[0].clone()
        for other in self._flat[1:]:
            flat += other
        for parameter, summed in zip(self._flat_of, torch.split(flat[:-1], sizes), strict=True):
            parameter.grad = summed.view_as(parameter)
        self._give_columns()
        return float(flat[-1])

    def done(self) -> None:
        """Wait until all have stepped."""
        self._meet()
        self._rows = 0
        self._kept.clear()

    def _leave_ragged(self) -> None:
        """Put this process's ragged columns, and how much it has, where others look."""
        rank, parts = self._group.rank, list(zip(*self._kept, strict=True))
        columns = [_joined(part) for part in parts] or [
            (torch.zeros(0, dtype=dtype), torch.zeros(1, dtype=torch.int64)) for dtype in self._dtypes
        ]
        self._counts[rank] = torch.tensor([self._rows, *(len(values) for values, _ in columns)])
        if self._dtypes:
            for place, tensor in zip(self._area(rank), (one for both in columns for one in both), strict=True):
                place.copy_(tensor)

    def _area(self, rank: int) -> list[Tensor]:
        """Values and offsets of each ragged column of a process, in turn."""
        rows, *counts = self._counts[rank].tolist()
        both = [(((n,), dtype), ((rows + 1,), torch.int64)) for n, dtype in zip(counts, self._dtypes, strict=True)]
        specs: list[Spec] = [spec for one in both for spec in one]
        self._areas[rank].grow(bytes_of(specs))
        return self._areas[rank].tensors(specs)

    def _give_columns(self) -> None:
        counts = self._counts[:, 0].tolist()
        areas = [self._area(rank) for rank in range(len(counts))] if self._dtypes else []
        ids, x, grads = (self._batch(one, counts) for one in (self._all_ids, self._all_x, self._all_grads))
        single = [column for column in self._mine.numbers if column < ids.size(1)]
        ragged = [2 * (column - ids.size(1)) for column in self._mine.numbers[len(single) :]]
        joined = [_joined([(area[n], area[n + 1]) for area in areas]) for n in ragged]
        lookups = Lookups(ids, joined, single)
        for weight, places in self._mine.places.items():
            deep = weight is not self._model.wide.weight
            give(weight, *lookups.sums(places, x if deep else grads, weight.size(1), mean=deep))

    def _batch(self, room: Tensor, counts: Sequence[int]) -> Tensor:
        """The rows of all processes, in their order: but for a last batch, as they lie."""
        if all(count == self._each for count in counts):
            return room
        return torch.cat([room[n * self._each : n * self._each + count] for n, count in enumerate(counts)])

    def _meet(self) -> None:
        """Wait for the other processes; raises FitError where one is gone."""
        self._meetings += 1
        where = (self._numbers.data_ptr(), self._group.rank, self._group.size, self._meetings)
        while (missing := native.meet(*where)) >= 0:
            if not self._home.is_held(missing) and native.meet(*where) == missing:
                raise FitError(f"process {missing + 1} of {self._group.size} is gone")


def _joined(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """One ragged column's rows, part after part."""
    if len(parts) == 1:
        return parts[0]
    starts = torch.tensor([0, *(len(values) for values, _ in parts)]).cumsum(0).tolist()
    offsets = [parts[0][1][:1], *(ends[1:] + start for (_, ends), start in zip(parts, starts, strict=False))]
    return torch.cat([values for values, _ in parts]), torch.cat(offsets)
