"""The state store: one document that many workers follow, changed in one order. Calls block: keep them off the loop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from types import TracebackType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from service.state import bulk, databases, tables
from service.state.counts import Counts
from service.state.document import Document
from service.state.samples import Samples
from service.state.workers import LIVE_SECONDS, VersionState, Worker


class StateError(Exception):
    """The state store cannot be used: one plain line that says why."""


class StateStore:
    """A database that holds the document; each method is one transaction and raises StateError where it cannot be."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._file: tuple[int, int] | None = None
        self._closed = False

    @classmethod
    def open(cls, url: str) -> StateStore:
        """Open or make the store, and write to it once, so that one that cannot be written fails here."""
        named = f"--state: cannot use {databases.shown(url)}"
        try:
            store = cls(databases.open_engine(url))
        except (SQLAlchemyError, ValueError):
            raise StateError(f"{named}: it is no URL of a database") from None
        except ModuleNotFoundError as error:
            raise StateError(f"{named}: its driver is not installed ({error.name})") from None
        try:
            with store.transaction() as change:
                change.prepare()
        except StateError as error:
            store.close()
            raise StateError(f"{named}: {error}") from error
        store._file = databases.file_of(store._engine)
        return store

    def close(self) -> None:
        """What another thread is at goes on to its end."""
        self._closed = True
        self._engine.dispose()

    def __enter__(self) -> StateStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A change: alone with the store from its first read on, all or nothing."""
        with self._connection(writes=True, alone=True) as connection:
            yield Transaction(connection)

    @contextmanager
    def adding(self) -> Iterator[Transaction]:
        """A change that only adds to what is counted, all or nothing: several may be under way at once.

        They take rows in one order, so that no two wait for each other: event keys, cells, units, samples.
        """
        with self._connection(writes=True) as connection:
            yield Transaction(connection)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A view of the store at one moment."""
        with self._connection() as connection:
            yield Transaction(connection)

    def document(self) -> Document:
        with self.reading() as view:
            return view.document()

    def revision(self) -> int:
        with self.reading() as view:
            return view.revision()

    def workers(self) -> list[Worker]:
        """The living workers of all replicas."""
        with self.reading() as view:
            return view.workers()

    def tell(self, worker: Worker) -> None:
        """Record a worker's heartbeat."""
        with self.transaction() as change:
            change.tell(worker)

    def forget(self, replica: str, worker: str | None = None) -> None:
        """Remove a worker, or all of a replica."""
        with self.transaction() as change:
            change.forget(replica, worker)

    @contextmanager
    def _connection(self, *, writes: bool = False, alone: bool = False) -> Iterator[sa.Connection]:
        if self._file is not None and databases.file_of(self._engine) != self._file:
            # An open file that was moved away takes writes that nobody will ever read.
            raise StateError("its file was moved, replaced or removed under the running service; restart the service")
        options = databases.begin_options(self._engine, writes=writes, alone=alone)
        try:
            with self._engine.connect() as connection:
                with connection.execution_options(**options).begin():
                    yield connection
                if self._closed:
                    connection.detach()  # its pool is gone, and nobody else would close it
        except SQLAlchemyError as error:
            raise StateError(_said(error)) from error


class Transaction:
    """Reads and writes of one transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self.counts, self.samples = Counts(connection), Samples(connection)

    @property
    def connection(self) -> sa.Connection:
        """For the other files of this room, whose tables the same transaction changes."""
        return self._connection

    def prepare(self) -> None:
        """Make the tables and the first, empty document; StateError where another format stands there."""
        tables.metadata.create_all(self._connection)
        found = self._connection.execute(sa.select(tables.document.c.format)).scalar_one_or_none()
        if found is None:
            row = {"id": 1, "format": tables.FORMAT, "epoch": 0, "revision": 0, "body": Document().body()}
            self._connection.execute(tables.document.insert().values(row))
        elif found != tables.FORMAT:
            raise StateError(f"it has format {found}, this program knows {tables.FORMAT}")
        else:
            # A write, for the sake of finding out now whether one is possible.
            self._connection.execute(tables.document.update().values(format=tables.FORMAT))

    def document(self) -> Document:
        row = self._connection.execute(sa.select(tables.document)).one()
        return Document(epoch=row.epoch, revision=row.revision, **row.body)

    def revision(self) -> int:
        return int(self._connection.execute(sa.select(tables.document.c.revision)).scalar_one())

    def put_loaded(self, loaded: Mapping[str, int], catalogs: Mapping[str, int] | None = None) -> Document:
        """Replace the set of versions to be loaded, and where given their catalog revisions: a new revision of the
        same epoch. A version that is no longer in the set has its catalog revision forgotten."""
        old = self.document()
        wanted = old.catalogs if catalogs is None else catalogs
        kept = {version: number for version, number in wanted.items() if number and version in loaded}
        return self._put(replace(old, revision=old.revision + 1, loaded=dict(loaded), catalogs=kept))

    def put_traffic(self, traffic: Mapping[str, Any], *, who: str, undo: int | None) -> Document:
        """Replace the split: a new epoch. `undo` is the epoch whose traffic an undo of this change restores."""
        old = self.document()
        new = replace(old.with_traffic(traffic), epoch=old.epoch + 1, revision=old.revision + 1)
        row = {"epoch": new.epoch, "at": time.time(), "who": who, "traffic": new.traffic(), "undo": undo}
        self._connection.execute(tables.history.insert().values(row))
        return self._put(new)

    def history(self, limit: int | None = None) -> list[sa.Row[Any]]:
        """Rows (epoch, at, who, traffic, undo), newest first."""
        query = sa.select(tables.history).order_by(tables.history.c.epoch.desc()).limit(limit)
        return list(self._connection.execute(query))

    def past(self, epoch: int) -> sa.Row[Any] | None:
        """The history's row of one epoch."""
        return self._connection.execute(sa.select(tables.history).where(tables.history.c.epoch == epoch)).one_or_none()

    def signing_keys(self) -> list[tuple[float, bytes]]:
        """(created, secret) of the newest two keys that sign prediction ids, newest first."""
        query = sa.select(tables.signing_keys).order_by(tables.signing_keys.c.id.desc()).limit(2)
        return [(row.created, bytes(row.secret)) for row in self._connection.execute(query)]

    def add_signing_key(self, secret: bytes) -> None:
        """Add a key beside the newest one; those before it go. Of two that are added at once, one is."""
        newest = self._connection.execute(sa.select(sa.func.max(tables.signing_keys.c.id))).scalar_one() or 0
        bulk.insert_new(self._connection, tables.signing_keys, [(newest + 1, time.time(), secret)])
        self._connection.execute(tables.signing_keys.delete().where(tables.signing_keys.c.id < newest))

    def workers(self) -> list[Worker]:
        """The living workers of all replicas."""
        row = tables.workers.c
        alive = row.seen > time.time() - LIVE_SECONDS
        query = sa.select(tables.workers).where(alive).order_by(row.replica, row.worker)
        return [_worker(found) for found in self._connection.execute(query)]

    def tell(self, worker: Worker) -> None:
        row = asdict(worker)
        if not self._connection.execute(tables.workers.update().where(_is(worker)).values(row)).rowcount:
            self._connection.execute(tables.workers.insert().values(row))
            # Whoever comes clears away what a killed replica left behind.
            stale = tables.workers.c.seen < time.time() - 20 * LIVE_SECONDS
            self._connection.execute(tables.workers.delete().where(stale))

    def forget(self, replica: str, worker: str | None) -> None:
        query = tables.workers.delete().where(tables.workers.c.replica == replica)
        if worker is not None:
            query = query.where(tables.workers.c.worker == worker)
        self._connection.execute(query)

    def _put(self, new: Document) -> Document:
        row = {"epoch": new.epoch, "revision": new.revision, "body": new.body()}
        self._connection.execute(tables.document.update().values(row))
        return new


def _said(error: SQLAlchemyError) -> str:
    """The database's own words, in one line."""
    lines = str(getattr(error, "orig", None) or error).splitlines()
    return lines[0] if lines else type(error).__name__


def _is(worker: Worker) -> sa.ColumnElement[bool]:
    row = tables.workers.c
    return sa.and_(row.replica == worker.replica, row.worker == worker.worker)


def _worker(row: sa.Row[Any]) -> Worker:
    values = dict(row._mapping)
    states = {version: VersionState(**state) for version, state in values.pop("states").items()}
    return Worker(**values, states=states)
