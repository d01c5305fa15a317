"""How a database is opened: SQLite for one machine, PostgreSQL for several. Nothing else knows which of them it is."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

import sqlalchemy as sa

BUSY_SECONDS = 5.0
POSTGRESQL = ("postgresql://", "postgres://")
# Any number, the same in every process of every replica: the lock of those who change what others decide by.
ALONE = 0x7477_696E_7261_6E6B
# A statement takes milliseconds; a worker that was stopped inside a change may not keep all others from theirs.
SERVER = "-c lock_timeout=5000 -c statement_timeout=30000 -c idle_in_transaction_session_timeout=30000"
# A server that went without a word is given up after seconds, not after the quarter of an hour that TCP takes.
CLIENT: dict[str, Any] = {
    "connect_timeout": 3,
    "tcp_user_timeout": 5000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "application_name": "twinrank",
}


def open_engine(url: str) -> sa.Engine:
    """An engine whose connections are ready for use by several processes at once. Nothing is connected to yet.

    Raises sqlalchemy.exc.ArgumentError or ValueError for what is no URL, ModuleNotFoundError without its driver.
    """
    if not url.startswith(POSTGRESQL):
        engine = sa.create_engine(url, connect_args={"timeout": BUSY_SECONDS})
        _sqlite(engine)
        return engine
    given = sa.make_url(url).set(drivername="postgresql+psycopg")
    # What the URL itself says of a connection holds; its `options` come after ours.
    own = given.query.get("options", "")
    settings = {name: value for name, value in CLIENT.items() if name not in given.query}
    engine = sa.create_engine(
        given.difference_update_query(["options"]),
        connect_args={**settings, "options": f"{SERVER} {own if isinstance(own, str) else ' '.join(own)}"},
        pool_pre_ping=True,  # a connection that broke meanwhile, in a restart of the server, is replaced unseen
        pool_size=4,
        max_overflow=4,
        pool_timeout=BUSY_SECONDS,
    )
    _postgresql(engine)
    return engine


def shown(url: str) -> str:
    """The URL without its password."""
    try:
        return sa.make_url(url).render_as_string(hide_password=True)
    except (sa.exc.ArgumentError, ValueError):
        return "what was given"


def begin_options(engine: sa.Engine, *, writes: bool, alone: bool) -> dict[str, Any]:
    """Execution options of a connection that is to begin a transaction."""
    if writes or engine.dialect.name == "sqlite":
        return {"writes": writes, "alone": alone}
    # A view at one moment: elsewhere each statement would see what was committed before it.
    return {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}


def file_of(engine: sa.Engine) -> tuple[int, int] | None:
    """Which file the engine's database is, None where it is none or not there."""
    try:
        found = os.stat(engine.url.database or "") if engine.dialect.name == "sqlite" else None
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


def _sqlite(engine: sa.Engine) -> None:
    @sa.event.listens_for(engine, "connect")
    def connect(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say, not where the driver guesses
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # what was answered 200 outlives a power cut

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # A change takes the write lock before it reads, so two changes at once have one order.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgresql(engine: sa.Engine) -> None:
    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("alone", False):
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ALONE})")
