"""Many rows in one statement, in SQL that SQLite and PostgreSQL read alike.

Past SQLAlchemy's compiler, which takes longer over five hundred rows than the database does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import sqlalchemy as sa

Row = tuple[Any, ...]

# Rows of one statement: SQLite takes 32,766 values.
CHUNK = 500


def insert_new(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> int:
    """Insert the rows, given in the order of the columns, that are not there by their key; how many there were."""
    return sum(
        connection.exec_driver_sql(_insert(table, len(chunk), connection.dialect.paramstyle), _flat(chunk)).rowcount
        for chunk in _chunks(rows)
    )


def insert_keys(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> set[Any]:
    """As `insert_new`; the first column of the rows that were not there."""
    new: set[Any] = set()
    for chunk in _chunks(rows):
        statement = _insert(table, len(chunk), connection.dialect.paramstyle)
        statement += f" RETURNING {table.columns[0].name}"
        new.update(bytes(found[0]) for found in connection.exec_driver_sql(statement, _flat(chunk)).all())
    return new


def add(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> None:
    """Insert the rows, or add their values to those of the row that has their key."""
    if rows:
        connection.exec_driver_sql(_add(table, connection.dialect.paramstyle), list(rows))


class Fields(Protocol):
    """A named tuple whose fields are columns."""

    def _asdict(self) -> dict[str, Any]: ...


def add_fields(connection: sa.Connection, table: sa.Table, rows: Mapping[Any, Fields]) -> None:
    """The same for named tuples, of the keys and of the values, in the order of the keys."""
    values = [{**key._asdict(), **rows[key]._asdict()} for key in sorted(rows)]
    add(connection, table, [tuple(one[column.name] for column in table.columns) for one in values])


def _chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    return (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))


def _flat(rows: Sequence[Row]) -> Row:
    return tuple(value for row in rows for value in row)


@cache
def _insert(table: sa.Table, count: int, paramstyle: str) -> str:
    return f"{_into(table)} VALUES {', '.join([_row(table, paramstyle)] * count)} ON CONFLICT DO NOTHING"


@cache
def _add(table: sa.Table, paramstyle: str) -> str:
    keys = ", ".join(column.name for column in table.primary_key)
    sums = ", ".join(
        f"{column.name} = {table.name}.{column.name} + excluded.{column.name}"
        for column in table.columns
        if not column.primary_key
    )
    return f"{_into(table)} VALUES {_row(table, paramstyle)} ON CONFLICT ({keys}) DO UPDATE SET {sums}"


def _into(table: sa.Table) -> str:
    return f"INSERT INTO {table.name} ({', '.join(column.name for column in table.columns)})"


def _row(table: sa.Table, paramstyle: str) -> str:
    mark = "?" if paramstyle == "qmark" else "%s"
    return f"({', '.join([mark] * len(table.columns))})"
