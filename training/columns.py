"""Which process of a machine sums and steps which columns of a batch, and with them which rows of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from torch import nn

from training.model import WideDeep
from training.places import Places
from training.rows import Place

Tables = dict[nn.Parameter, list[Place]]  # where columns enter each table


def tables_of(model: WideDeep, places: Places) -> Tables:
    """Those of the deep part and the wide one, where it has any rows."""
    found: Tables = {one.table.weight: [*one.left, *one.right, *one.bags] for one in places.tables}
    wide = [*places.wide_ids, *places.wide_bags]
    return found | ({model.wide.weight: wide} if wide else {})


@dataclass(frozen=True, slots=True)
class Columns:
    """One process's columns: their numbers, where they enter each table once they are numbered anew from 0 in this
    order, and first and last + 1 of the rows of each table that they have to themselves."""

    numbers: list[int]
    places: Tables
    rows: Mapping[nn.Parameter, list[tuple[int, int]]]

    @classmethod
    def of(cls, tables: Tables, rank: int, size: int, batch: int, whole: Sequence[nn.Parameter]) -> Columns:
        """Those of process `rank` of `size`; tables of `whole` are stepped whole, all others where a batch of `batch`
        rows touched them."""
        ends = {weight: _ends(weight, places) for weight, places in tables.items()}
        work: dict[int, float] = {}
        for weight, places in tables.items():
            stepped = any(weight is one for one in whole)
            for place in places:
                rows = ends[weight][place.start] - place.start
                cost = batch * (8 + weight.size(1)) + (2 * rows * weight.size(1) if stepped else 0)
                work[place.column] = work.get(place.column, 0) + cost
        numbers = sorted(_shares(work, size)[rank])
        anew = {column: n for n, column in enumerate(numbers)}
        own = {weight: [place for place in places if place.column in anew] for weight, places in tables.items()}
        return cls(
            numbers,
            {weight: [replace(one, column=anew[one.column]) for one in places] for weight, places in own.items()},
            {weight: [(one.start, ends[weight][one.start]) for one in places] for weight, places in own.items()},
        )


def _ends(weight: nn.Parameter, places: Sequence[Place]) -> dict[int, int]:
    """Where the rows end of the column whose rows begin at a start."""
    return dict(pairwise([*sorted(place.start for place in places), weight.size(0)]))


def _shares(work: Mapping[int, float], size: int) -> list[list[int]]:
    """The heaviest first, each to the process that has least: the same in all of them."""
    shares: list[list[int]] = [[] for _ in range(size)]
    loads = [0.0] * size
    for column in sorted(work, key=lambda one: (-work[one], one)):
        least = loads.index(min(loads))
        shares[least].append(column)
        loads[least] += work[column]
    return shares
