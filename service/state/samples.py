"""Sampled answers and what was shown and clicked of them, kept until their clicks are late. Inside one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import sqlalchemy as sa

from service.state import bulk, tables

# What one experiment's answers may weigh here; beyond, half of them go. An answer weighs as many as it has items, at
# least LEAST: there are never more than 100,000.
MOST_KEPT = 400_000
LEAST = 4
DRAWS = 2**32
_SIGN = 2**63


class Kept(NamedTuple):
    """One answer. `items` are int64 hashes and `scores` float32, of equal number, as bytes; `unit` has 64 bits."""

    prediction: bytes
    experiment: str
    version: str
    at: int  # whole seconds since 1970
    draw: int  # 32 bits that do not depend on anything
    unit: int
    weight: int
    items: bytes
    scores: bytes
    shadow_version: str | None
    shadow: bytes | None


class Seen(NamedTuple):
    """An item that was shown, or clicked, in a sampled answer."""

    prediction: bytes
    item: int
    clicked: int  # 0 shown, 1 clicked


class Samples:
    """The samples as one transaction sees them."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def add(self, experiment: str, answers: Iterable[Kept]) -> int:
        """Keep answers of one experiment, as far as its sample takes them; how often that was halved by now."""
        bulk.insert_new(self._connection, tables.kept_samples, [(experiment, 0, 0)])
        here = self._hold(experiment)
        row = self._connection.execute(sa.select(tables.kept_samples).where(here)).one()
        halvings, held = row.halvings, row.held
        below = [one for one in answers if one.draw < DRAWS >> halvings]
        bulk.insert_new(self._connection, tables.kept, [_row(one) for one in below])
        held += sum(one.weight for one in below)  # an answer is added once: its nonce is its own
        while held > MOST_KEPT and halvings < 32:
            halvings += 1
            held -= self._remove(tables.kept.c.experiment == experiment, tables.kept.c.draw >= DRAWS >> halvings)
        if halvings and held < MOST_KEPT // 4:
            halvings -= 1  # the window took most of them: what comes is sampled twice as often
        changed = tables.kept_samples.update().where(here).values(halvings=halvings, held=held)
        self._connection.execute(changed)
        return int(halvings)

    def see(self, seen: Iterable[Seen], received: int) -> None:
        """Note what was shown and clicked."""
        bulk.insert_new(self._connection, tables.kept_events, [(*one, received) for one in sorted(seen)])

    def forget(self, before: float, most: int) -> int:
        """Remove up to `most` answers given before a time, and what was seen of such; how many rows went."""
        answer, event = tables.kept.c, tables.kept_events.c
        old = sa.select(answer.prediction, answer.experiment, answer.weight).where(answer.at < int(before)).limit(most)
        found = self._connection.execute(old).all()
        for experiment in sorted({row.experiment for row in found}):
            self._hold(experiment)
        delete = tables.kept.delete().where(answer.prediction.in_([row.prediction for row in found]))
        gone = self._connection.execute(delete.returning(answer.prediction, answer.experiment, answer.weight)).all()
        if gone:
            ids = [row.prediction for row in gone]
            self._connection.execute(tables.kept_events.delete().where(event.prediction.in_(ids)))
        for experiment in sorted({row.experiment for row in gone}):
            weight = sum(row.weight for row in gone if row.experiment == experiment)
            sample = tables.kept_samples
            fewer = sample.update().where(sample.c.experiment == experiment).values(held=sample.c.held - weight)
            self._connection.execute(fewer)
        # Seen of answers that were never kept: what was to be kept and was dropped.
        stale = sa.select(event.prediction).where(event.received < int(before)).limit(most)
        query = tables.kept_events.delete().where(event.prediction.in_(stale), event.received < int(before))
        return len(gone) + self._connection.execute(query).rowcount

    def kept(self, experiment: str) -> list[Kept]:
        """All answers of one experiment."""
        query = sa.select(tables.kept).where(tables.kept.c.experiment == experiment)
        found = self._connection.execute(query)
        return [Kept(*row)._replace(unit=row[5] + _SIGN) for row in found]

    def seen(self, experiment: str) -> list[Seen]:
        """What was shown and clicked of an experiment's answers."""
        event, answer = tables.kept_events.c, tables.kept.c
        query = sa.select(event.prediction, event.item, event.kind).join_from(
            tables.kept_events, tables.kept, event.prediction == answer.prediction
        )
        return [Seen(*row) for row in self._connection.execute(query.where(answer.experiment == experiment))]

    def _hold(self, experiment: str) -> sa.ColumnElement[bool]:
        """Take the lock of an experiment's sample, before that of any of its answers; which row that is."""
        here = tables.kept_samples.c.experiment == experiment
        # On PostgreSQL a row that was written is locked until the transaction ends.
        self._connection.execute(tables.kept_samples.update().where(here).values(experiment=experiment))
        return here

    def _remove(self, *where: sa.ColumnElement[bool]) -> int:
        """Remove the answers for which all of `where` holds; what they weighed."""
        weight = self._connection.execute(sa.select(sa.func.sum(tables.kept.c.weight)).where(*where)).scalar_one() or 0
        which = sa.select(tables.kept.c.prediction).where(*where)
        events = tables.kept_events
        self._connection.execute(events.delete().where(events.c.prediction.in_(which)))
        self._connection.execute(tables.kept.delete().where(*where))
        return int(weight)


def _row(one: Kept) -> tuple[object, ...]:
    return (*one[:5], one.unit - _SIGN, *one[6:])
