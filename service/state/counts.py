"""What is counted in experiments: events counted once, additive cells, distinct units. Inside one transaction.

Rows are written in the order of their keys, so that two transactions of PostgreSQL cannot wait for each other.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from service.state import bulk, tables

# An epoch's units are exact up to so many, and a uniform sample from there on.
MOST_UNITS = 65_536
HASHES = 2**64
KEY_BYTES = 16
# The first byte of a key that has no time: as one it would be in the year 2105.
ANYTIME = b"\xff"
_END = b"\xff" * (KEY_BYTES + 1)
_SIGN = 2**63


class CellKey(NamedTuple):
    """Where something is counted; `sub` is 0 where `reason` is not "split"."""

    epoch: int
    version: str
    reason: str
    sub: int


class Tallied(NamedTuple):
    """What a cell has, or what is added to it."""

    predictions: int = 0
    errors: int = 0
    impressions: int = 0
    clicks: int = 0


class Counts:
    """The counts as one transaction sees them."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def take_keys(self, keys: Collection[bytes]) -> set[bytes]:
        """Those of the keys, of KEY_BYTES each, that were never taken; they are from now on.

        A key begins with 4 bytes of a time, after which nobody asks for it once the window has passed, or with ANYTIME.
        """
        received = int(time.time())
        return bulk.insert_keys(self._connection, tables.event_keys, [(key, received) for key in sorted(keys)])

    def known_keys(self, keys: Collection[bytes]) -> set[bytes]:
        """Those of the keys that were taken, and not forgotten since."""
        column, asked, found = tables.event_keys.c.key, sorted(keys), set[bytes]()
        for start in range(0, len(asked), bulk.CHUNK):
            query = sa.select(column).where(column.in_(asked[start : start + bulk.CHUNK]))
            found.update(bytes(row.key) for row in self._connection.execute(query))
        return found

    def forget_keys(self, before: float, most: int) -> int:
        """Remove up to `most` of the keys whose time lies before one; how many."""
        column = tables.event_keys.c
        old = sa.select(column.key).where(column.key < int(before).to_bytes(4, "big")).order_by(column.key).limit(most)
        return self._connection.execute(tables.event_keys.delete().where(column.key.in_(old))).rowcount

    def forget_timeless(self, part: int, parts: int, before: float) -> int:
        """Remove those of one of `parts` equal parts of the keys of ANYTIME that were received before a time; how many.

        They lie in no order of time, and an index would cost more than going through them all now and then.
        """
        column = tables.event_keys.c
        first = ANYTIME + (part * 2**32 // parts).to_bytes(4, "big")
        last = ANYTIME + ((part + 1) * 2**32 // parts).to_bytes(4, "big") if part + 1 < parts else _END
        query = tables.event_keys.delete().where(column.received < int(before), column.key >= first, column.key < last)
        return self._connection.execute(query).rowcount

    def add(self, cells: Mapping[CellKey, Sequence[int]]) -> None:
        """Add to cells, values in the order of `Tallied`."""
        rows = [(*key, *values) for key, values in cells.items()]
        bulk.add(self._connection, tables.cells, sorted(rows))

    def cells(self, epochs: Collection[int]) -> list[tuple[CellKey, Tallied]]:
        """All cells of some epochs."""
        found = self._connection.execute(_of(tables.cells, epochs)).all()
        return [(CellKey(*row[:4]), Tallied(*row[4:])) for row in found if row.epoch in epochs]

    def add_units(self, epoch: int, units: Iterable[tuple[str, int]]) -> int:
        """Add (version, hash) of units to an epoch's sample; how often it was halved by now."""
        bulk.insert_new(self._connection, tables.unit_samples, [(epoch, 0, 0)])
        here = tables.unit_samples.c.epoch == epoch
        # Written before it is read: on PostgreSQL that takes the row's lock.
        self._connection.execute(tables.unit_samples.update().where(here).values(epoch=epoch))
        row = self._connection.execute(sa.select(tables.unit_samples).where(here)).one()
        halvings, held = row.halvings, row.held
        below = sorted((epoch, version, hash_ - _SIGN) for version, hash_ in units if hash_ < limit(halvings))
        held += bulk.insert_new(self._connection, tables.units, below)
        while held > MOST_UNITS and halvings < 63:
            halvings += 1
            column = tables.units.c
            beyond = sa.and_(column.epoch == epoch, column.hash >= limit(halvings) - _SIGN)
            held -= self._connection.execute(tables.units.delete().where(beyond)).rowcount
        changed = tables.unit_samples.update().where(here).values(halvings=halvings, held=held)
        self._connection.execute(changed)
        return int(halvings)

    def units(self, epoch: int) -> list[tuple[str, int]]:
        """(version, hash) of an epoch's sampled units, in this order."""
        column = tables.units.c
        query = sa.select(column.version, column.hash).where(column.epoch == epoch)
        found = self._connection.execute(query.order_by(column.version, column.hash))
        return [(version, hash_ + _SIGN) for version, hash_ in found]

    def halvings(self, epochs: Collection[int]) -> dict[int, int]:
        """How often the sample of units was halved, of those epochs that have one."""
        return {row.epoch: row.halvings for row in self._connection.execute(_of(tables.unit_samples, epochs))}


def limit(halvings: int) -> int:
    """Hashes below it are in a sample that was halved so often."""
    return HASHES >> halvings


def _of(table: sa.Table, epochs: Collection[int]) -> sa.Select[Any]:
    """A superset: an IN of a thousand epochs is slower than what lies between the first and the last."""
    first, last = min(epochs, default=0), max(epochs, default=-1)
    return sa.select(table).where(table.c.epoch.between(first, last))
