"""One side's columns of a trained model: what `training.halves` makes the halves of users and items with.

Shape letters as there. Column numbers are the side's own.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from service.scoring.layout import CrossSpec, IdColumn, Layout
from training.crosses import CrossIds, CrossPart, outer, table_rows
from training.model import EmbeddingTable, Wide, WideDeep, starts_of

Half = tuple[Tensor, Tensor, list[Tensor], list[Tensor]]


class Side(nn.Module):
    """The half of a model that one side's columns make; column numbers are the side's own."""

    weight: Tensor
    bias: Tensor
    columns: Tensor
    starts: Tensor
    numeric_columns: Tensor
    numeric_rows: Tensor
    bags: list[int]
    bag_starts: list[int]

    def __init__(self, model: WideDeep, layout: Layout, *, items: bool) -> None:
        super().__init__()
        own = [column for column in layout.ids if (column.side == "item") == items]
        own_bags = [column for column in layout.bags if (column.side == "item") == items]
        own_numerics = [column for column in layout.numerics if (column.side == "item") == items]
        tables = [
            SideTable(table, layout, own, own_bags) for table in model.tables if isinstance(table, EmbeddingTable)
        ]
        self.tables = nn.ModuleList(tables)
        first = model.mlp[0]
        assert isinstance(first, nn.Linear)  # the MLP begins with its first, or its only, layer
        width = len(own_numerics) + sum(table.width for table in tables)
        rows = first.weight[:, first.in_features - width :] if items else first.weight[:, :width]
        self.register_buffer("weight", rows.detach().clone())
        self.register_buffer("bias", torch.zeros_like(first.bias) if items else first.bias.detach().clone())
        self._init_wide(model.wide, layout, own, own_bags, items)
        places = {id(column): (False, n) for n, column in enumerate(own)}
        places |= {id(column): (True, n) for n, column in enumerate(own_bags)}
        whole, parts = [], []
        for cross, ids_of, start in zip(layout.crosses, model.wide.crosses, model.wide.cross_starts, strict=True):
            assert isinstance(ids_of, CrossIds)  # what a wide part's crosses are made of
            members = [(*places[id(c)], stride) for c, stride in _members(cross, layout, ids_of) if id(c) in places]
            if len(members) == len(cross.members):
                whole.append(SideCross(members, model.wide, ids_of, start))
            elif not one_sided(cross, layout):
                parts.append(CrossPart(members))
        self.crosses, self.parts = nn.ModuleList(whole), nn.ModuleList(parts)

    def _init_wide(
        self, wide: Wide, layout: Layout, own: list[IdColumn], own_bags: list[IdColumn], items: bool
    ) -> None:
        ids, bags = [c for c in layout.ids if c.wide], [c for c in layout.bags if c.wide]
        id_starts, bag_starts, _ = starts_of(ids, bags)
        mine = [(own.index(c), start) for c, start in zip(ids, id_starts, strict=True) if c in own]
        my_bags = [(own_bags.index(c), start) for c, start in zip(bags, bag_starts, strict=True) if c in own_bags]
        self.bags, self.bag_starts = [n for n, _ in my_bags], [start for _, start in my_bags]
        self.register_buffer("columns", torch.tensor([n for n, _ in mine], dtype=torch.int64))
        self.register_buffer("starts", torch.tensor([start for _, start in mine], dtype=torch.int64))
        numerics = [c for c in layout.numerics if (c.side == "item") == items]
        wide_numerics = [c for c in layout.numerics if c.wide]
        columns = [n for n, c in enumerate(numerics) if c.wide]
        rows = [n for n, c in enumerate(wide_numerics) if (c.side == "item") == items]
        self.register_buffer("numeric_columns", torch.tensor(columns, dtype=torch.int64))
        self.every, self.every_numeric = every(self.columns, own), every(self.numeric_columns, numerics)
        self.register_buffer("numeric_rows", torch.tensor(rows, dtype=torch.int64))
        self.wide_weight, self.numeric_weight = wide.weight, wide.numeric_weight

    def forward(self, numerics: Tensor, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> Half:
        vectors = [numerics]
        for table in self.tables:
            vectors.append(table(ids, bag_values, bag_offsets))
        first = F.linear(torch.cat(vectors, 1), self.weight, self.bias)
        chosen = numerics if self.every_numeric else numerics.index_select(1, self.numeric_columns)
        rows = (ids if self.every else ids.index_select(1, self.columns)) + self.starts
        wide = F.embedding(rows, self.wide_weight).sum(1)
        wide = wide + chosen @ self.numeric_weight.index_select(0, self.numeric_rows)
        for n, bag in enumerate(self.bags):
            wide = wide + sum_of(self.wide_weight, bag_values[bag] + self.bag_starts[n], bag_offsets[bag])
        for cross in self.crosses:
            wide = wide + cross(ids, bag_values, bag_offsets)
        values: list[Tensor] = []
        offsets: list[Tensor] = []
        for part in self.parts:
            numbers, ends = part(ids, bag_values, bag_offsets)
            values.append(numbers)
            offsets.append(ends)
        return first, wide, values, offsets


class SideTable(nn.Module):
    """One side's columns of an embedding table."""

    columns: Tensor
    starts: Tensor
    bags: list[int]
    bag_starts: list[int]

    def __init__(
        self, table: EmbeddingTable, layout: Layout, own: Sequence[IdColumn], own_bags: Sequence[IdColumn]
    ) -> None:
        super().__init__()
        dim = table.weight.size(1)
        ids, bags = [c for c in layout.ids if c.dim == dim], [c for c in layout.bags if c.dim == dim]
        id_starts, bag_starts, _ = starts_of(ids, bags)
        mine = [(own.index(c), start) for c, start in zip(ids, id_starts, strict=True) if c in own]
        my_bags = [(own_bags.index(c), start) for c, start in zip(bags, bag_starts, strict=True) if c in own_bags]
        self.width = dim * (len(mine) + len(my_bags))
        self.bags, self.bag_starts = [n for n, _ in my_bags], [start for _, start in my_bags]
        self.register_buffer("columns", torch.tensor([n for n, _ in mine], dtype=torch.int64))
        self.register_buffer("starts", torch.tensor([start for _, start in mine], dtype=torch.int64))
        self.every = every(self.columns, own)
        self.weight = table.weight

    def forward(self, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> Tensor:
        """Vectors (rows, width) in the first layer's order."""
        rows = (ids if self.every else ids.index_select(1, self.columns)) + self.starts
        vectors = [F.embedding(rows, self.weight).flatten(1)]
        for n, bag in enumerate(self.bags):
            values = bag_values[bag] + self.bag_starts[n]
            vectors.append(
                F.embedding_bag(values, self.weight, bag_offsets[bag], mode="mean", include_last_offset=True)
            )
        return torch.cat(vectors, 1)


class SideCross(nn.Module):
    """A cross whose members all stand on one side: its wide sum (rows, 1)."""

    def __init__(self, members: Sequence[tuple[bool, int, int]], wide: Wide, cross: CrossIds, start: int) -> None:
        super().__init__()
        self.part = CrossPart(members)
        self.buckets, self.exact, self.start, self.weight = cross.buckets, cross.exact, start, wide.weight

    def forward(self, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> Tensor:
        numbers, offsets = self.part(ids, bag_values, bag_offsets)
        return sum_of(self.weight, table_rows(numbers, self.buckets, self.exact) + self.start, offsets)


class PairCross(nn.Module):
    """A cross of both sides: its wide sum from each side's part, pair by pair."""

    def __init__(self, wide: Wide, n: int) -> None:
        super().__init__()
        cross = wide.crosses[n]
        assert isinstance(cross, CrossIds)  # as in Side
        self.buckets, self.exact, self.start, self.weight = (
            cross.buckets,
            cross.exact,
            wide.cross_starts[n],
            wide.weight,
        )

    def forward(
        self, left: Tensor, left_offsets: Tensor, right: Tensor, right_offsets: Tensor, users: Tensor, rows: Tensor
    ) -> Tensor:
        """Sums (P, 1) of pairs: the users' row `users[p]` with the items' row `rows[p]`; no ragged row is empty."""
        if right.size(0) == right_offsets.size(0) - 1:  # one number an item
            right, offsets = right.index_select(0, rows), torch.arange(rows.size(0) + 1, device=rows.device)
        else:
            right, offsets = take_ragged(right, right_offsets, rows)
        if left_offsets.size(0) == 2:  # one user: its numbers with every item's
            numbers, offsets = (right.unsqueeze(1) + left).flatten(), offsets * left.size(0)
        elif left.size(0) == left_offsets.size(0) - 1:  # one number a user
            numbers = right + left.index_select(0, users).repeat_interleave(offsets.diff())
        else:
            left, left_offsets = take_ragged(left, left_offsets, users)
            numbers, offsets = outer(left, left_offsets, right, offsets)
        return sum_of(self.weight, table_rows(numbers, self.buckets, self.exact) + self.start, offsets)


def sum_of(weight: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
    """Sums (·, D) of ragged rows of a table."""
    return F.embedding_bag(rows, weight, offsets, mode="sum", include_last_offset=True)


def take_ragged(values: Tensor, offsets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The ragged rows of `rows`, in that order."""
    starts = offsets.index_select(0, rows)
    lengths = offsets.index_select(0, rows + 1) - starts
    taken = torch.cat([torch.zeros_like(offsets[:1]), lengths.cumsum(0)])
    place = torch.arange(int(taken[-1]), device=values.device) + (starts - taken[:-1]).repeat_interleave(lengths)
    return values.index_select(0, place), taken


def every(columns: Tensor, own: Sequence[object]) -> bool:
    """Whether the chosen columns are all of a side's, so that nothing need be chosen."""
    return columns.tolist() == list(range(len(own)))


def one_sided(cross: CrossSpec, layout: Layout) -> bool:
    """Whether all of a cross's members stand on the items' side, or none."""
    return len({column.side == "item" for column in _columns(cross, layout)}) == 1


def _columns(cross: CrossSpec, layout: Layout) -> list[IdColumn]:
    return [layout.bags[index] if is_bag else layout.ids[index] for is_bag, index in cross.members]


def _members(cross: CrossSpec, layout: Layout, ids_of: CrossIds) -> list[tuple[IdColumn, int]]:
    return list(zip(_columns(cross, layout), ids_of.strides, strict=True))
