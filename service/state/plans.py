"""Plans, how far they are, what their arms counted, and leases: who of many workers acts. Values go in and out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

from service.state.bulk import add_fields
from service.state.store import Transaction
from service.state.tables import metadata

SLOT_SECONDS = 10
# Slots older than this are added up into slot 0.
KEPT_SECONDS = 120

plans = sa.Table(
    "plans",
    metadata,
    sa.Column("experiment", sa.String(64), primary_key=True),
    sa.Column("serial", sa.BigInteger, nullable=False),
    sa.Column("active", sa.Boolean, nullable=False),
    sa.Column("body", sa.JSON, nullable=False),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.String(100), primary_key=True),
    sa.Column("holder", sa.String(100), nullable=False),
    sa.Column("until", sa.Double, nullable=False),
)

arm_counts = sa.Table(
    "arm_counts",
    metadata,
    sa.Column("experiment", sa.String(64), primary_key=True),
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("version", sa.String(64), primary_key=True),
    sa.Column("slot", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("requests", sa.BigInteger, nullable=False),
    sa.Column("errors", sa.BigInteger, nullable=False),
    sa.Column("slow", sa.BigInteger, nullable=False),
)


class ArmSlot(NamedTuple):
    """An arm of an epoch in one slot of time, which begins at `slot` seconds since 1970; 0 is all that is older."""

    experiment: str
    epoch: int
    version: str
    slot: int


class Counts(NamedTuple):
    """Additive: over workers, slots and epochs."""

    requests: int
    errors: int
    slow: int


class Row(NamedTuple):
    """A plan as it is stored: `serial` counts its changes, `body` is the writer's."""

    experiment: str
    serial: int
    active: bool
    body: dict[str, Any]


def read_plan(view: Transaction, experiment: str) -> Row | None:
    """The plan of an experiment, active or over."""
    found = view.connection.execute(sa.select(plans).where(plans.c.experiment == experiment)).one_or_none()
    return None if found is None else Row._make(found)


def active_plans(view: Transaction) -> list[Row]:
    """All that are under way."""
    query = sa.select(plans).where(plans.c.active).order_by(plans.c.experiment)
    return [Row._make(found) for found in view.connection.execute(query)]


def write_plan(change: Transaction, row: Row) -> None:
    """Store a plan in the place of the experiment's last one, whatever its serial."""
    values = row._asdict()
    query = plans.update().where(plans.c.experiment == row.experiment).values(values)
    if not change.connection.execute(query).rowcount:
        change.connection.execute(plans.insert().values(values))


def take_lease(change: Transaction, name: str, holder: str, *, now: float, seconds: float) -> bool:
    """Whether `holder` has the lease from now on, for so long: it had it, or nobody has."""
    values = {"name": name, "holder": holder, "until": now + seconds}
    free = sa.or_(leases.c.holder == holder, leases.c.until < now)
    if change.connection.execute(leases.update().where(leases.c.name == name, free).values(values)).rowcount:
        return True
    taken = change.connection.execute(sa.select(leases.c.holder).where(leases.c.name == name)).scalar_one_or_none()
    if taken is None:
        change.connection.execute(leases.insert().values(values))
    return taken is None


def add_counts(change: Transaction, counts: Mapping[ArmSlot, Counts]) -> None:
    """Add what a worker counted."""
    add_fields(change.connection, arm_counts, counts)


def read_counts(view: Transaction, experiment: str, since: int) -> list[tuple[ArmSlot, Counts]]:
    """What was counted from epoch `since` on."""
    query = sa.select(arm_counts).where(arm_counts.c.experiment == experiment, arm_counts.c.epoch >= since)
    return [(ArmSlot(*row[:4]), Counts(*row[4:])) for row in view.connection.execute(query)]


def fold_counts(change: Transaction, experiment: str, now: float) -> None:
    """Add up what is older than a plan looks at singly: the rows of a long plan stay few."""
    columns = arm_counts.c
    old = sa.and_(columns.experiment == experiment, columns.slot > 0, columns.slot < now - KEPT_SECONDS)
    found = list(change.connection.execute(sa.select(arm_counts).where(old)))
    if found:
        change.connection.execute(arm_counts.delete().where(old))
        for row in found:
            add_counts(change, {ArmSlot(row.experiment, row.epoch, row.version, 0): Counts(*row[4:])})


def drop_counts(change: Transaction, experiment: str) -> None:
    """Forget what was counted: a new plan begins."""
    change.connection.execute(arm_counts.delete().where(arm_counts.c.experiment == experiment))
