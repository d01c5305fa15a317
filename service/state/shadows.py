"""What the shadow found, as sums that every worker adds to: a row for each pair of versions and epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

from service.state.bulk import Fields, add_fields
from service.state.store import Transaction
from service.state.tables import metadata

KEYS = ("experiment", "epoch", "version", "shadow")
WHOLE = ("requests", "rows", "dropped", "failed", "ranked", "topped")
REAL = ("rank", "rank_2", "overlap", "overlap_2", "gap", "gap_2", "distance", "distance_2")

shadow_sums = sa.Table(
    "shadow_sums",
    metadata,
    sa.Column("experiment", sa.String(64), primary_key=True),
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("version", sa.String(64), primary_key=True),
    sa.Column("shadow", sa.String(64), primary_key=True),
    *(sa.Column(name, sa.BigInteger, nullable=False) for name in WHOLE),
    *(sa.Column(name, sa.Double, nullable=False) for name in REAL),
)


shadow_values = sa.Table(
    "shadow_values",
    metadata,
    sa.Column("experiment", sa.String(64), primary_key=True),
    sa.Column("shadow", sa.String(64), primary_key=True),
    sa.Column("feature", sa.String(1000), primary_key=True),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("missing", sa.BigInteger, nullable=False),
    sa.Column("unknown", sa.BigInteger, nullable=False),
)


class Pair(NamedTuple):
    """The version that answered in an epoch, and the one that shadowed it."""

    experiment: str
    epoch: int
    version: str
    shadow: str


class Value(NamedTuple):
    """A feature of a version that shadows."""

    experiment: str
    shadow: str
    feature: str


class Seen(NamedTuple):
    """Rows that were looked at, and its values in them that were missing or unknown."""

    rows: int
    missing: int
    unknown: int


def add_sums(change: Transaction, sums: Mapping[Pair, Fields]) -> None:
    """Add to the rows of these pairs."""
    add_fields(change.connection, shadow_sums, sums)


def add_values(change: Transaction, seen: Mapping[Value, Seen]) -> None:
    """Add to the rows of these features."""
    add_fields(change.connection, shadow_values, seen)


def read_sums(view: Transaction, experiment: str) -> list[tuple[Pair, dict[str, Any]]]:
    """All rows of an experiment, in order of their epochs: the pair, and its sums by their names."""
    query = sa.select(shadow_sums).where(shadow_sums.c.experiment == experiment).order_by(shadow_sums.c.epoch)
    found = [dict(row._mapping) for row in view.connection.execute(query)]
    return [(Pair(*(row.pop(name) for name in KEYS)), row) for row in found]


def read_values(view: Transaction, experiment: str, shadow: str) -> dict[str, Seen]:
    """What was seen of each feature of a version that shadowed in an experiment."""
    columns = shadow_values.c
    query = sa.select(columns.feature, columns.rows, columns.missing, columns.unknown)
    found = view.connection.execute(query.where(columns.experiment == experiment, columns.shadow == shadow))
    return {row.feature: Seen(*row[1:]) for row in found}
