"""Where the columns of a batch enter a model: each table's rows, and the first layer's floats."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from training.model import EmbeddingTable, WideDeep
from training.rows import Place


@dataclass(frozen=True, slots=True)
class TablePlaces:
    """Of one embedding table: id columns of the user's or context's side, of the item's, and bags."""

    table: EmbeddingTable
    left: list[Place]
    right: list[Place]
    bags: list[Place]


@dataclass(frozen=True, slots=True)
class Places:
    """Of a whole model. Bags are numbered behind the id columns, crosses behind the bags."""

    tables: list[TablePlaces]
    numerics: list[tuple[int, int, int]]  # first and last + 1 of them, and the first layer's float where they begin
    wide_ids: list[Place]
    wide_bags: list[Place]  # and crosses
    width: int  # of the first layer's input

    @classmethod
    def of(cls, model: WideDeep, numerics: int, ids: int, bags: int) -> Places:
        """`model` with so many columns of each kind, as `WideDeep.deep` and `Wide.forward` take them."""
        tables = []
        for table in model.tables:
            assert isinstance(table, EmbeddingTable)
            tables.append(TablePlaces(table, [], [], []))
        at = left = model.left_numerics
        for one in tables:
            at = _enter(one, ids, at, left=True)
        middle = at
        at += numerics - left
        for one in tables:
            at = _enter(one, ids, at, left=False)
        wide = model.wide
        columns = zip(wide.columns.tolist(), wide.starts.tolist(), strict=True)
        ragged = [*zip((ids + n for n in wide.bags), wide.bag_starts, strict=True)]
        ragged += [(ids + bags + n, start) for n, start in enumerate(wide.cross_starts)]
        return cls(
            tables,
            [(0, left, 0), (left, numerics, middle)],
            [Place(column, start) for column, start in columns],
            [Place(column, start) for column, start in ragged],
            at,
        )


def _enter(places: TablePlaces, ids: int, at: int, *, left: bool) -> int:
    """Add one side's columns of a table, which begin at float `at`; returns where they end."""
    table, dim = places.table, places.table.weight.size(1)
    split = table.left_width // dim
    columns = list(zip(table.columns.tolist(), table.starts.tolist(), strict=True))
    for column, start in columns[:split] if left else columns[split:]:
        (places.left if left else places.right).append(Place(column, start, at))
        at += dim
    bags = list(zip(table.bags, table.bag_starts, strict=True))
    for bag, start in bags[: table.left_bags] if left else bags[table.left_bags :]:
        places.bags.append(Place(ids + bag, start, at))
        at += dim
    return at


def first_layer(model: WideDeep) -> nn.Linear:
    first = model.mlp[0]
    assert isinstance(first, nn.Linear)
    return first
