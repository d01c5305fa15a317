"""Many rows in one statement: SQLite is given the rows, PostgreSQL an array of each column.

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
    return sum(_insert(connection, table, chunk).rowcount for chunk in _chunks(rows))


def insert_keys(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> set[Any]:
    """As `insert_new`; the first column of the rows that were not there."""
    new: set[Any] = set()
    for chunk in _chunks(rows):
        found = _insert(connection, table, chunk, f" RETURNING {table.columns[0].name}")
        new.update(bytes(row[0]) for row in found.all())
    return new


def add(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> None:
    """Insert the rows, each key once, or add their values to those of the row that has their key."""
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            f"{_into(table)} {_unnest(table, connection.dialect)} {_adding(table)}", _columns(rows)
        )
    else:
        connection.exec_driver_sql(f"{_into(table)} VALUES {_row(table)} {_adding(table)}", list(rows))


class Fields(Protocol):
    """A named tuple whose fields are columns."""

    def _asdict(self) -> dict[str, Any]: ...


def add_fields(connection: sa.Connection, table: sa.Table, rows: Mapping[Any, Fields]) -> None:
    """The same for named tuples, of the keys and of the values, in the order of the keys."""
    values = [{**key._asdict(), **rows[key]._asdict()} for key in sorted(rows)]
    add(connection, table, [tuple(one[column.name] for column in table.columns) for one in values])


def _chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    return (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))


def _insert(connection: sa.Connection, table: sa.Table, rows: Sequence[Row], end: str = "") -> sa.CursorResult[Any]:
    if connection.dialect.name == "postgresql":
        statement = f"{_into(table)} {_unnest(table, connection.dialect)} ON CONFLICT DO NOTHING{end}"
        return connection.exec_driver_sql(statement, _columns(rows))
    values = tuple(value for row in rows for value in row)
    return connection.exec_driver_sql(f"{_many(table, len(rows))} ON CONFLICT DO NOTHING{end}", values)


def _columns(rows: Sequence[Row]) -> Row:
    return tuple(map(list, zip(*rows, strict=True)))


@cache
def _into(table: sa.Table) -> str:
    return f"INSERT INTO {table.name} ({', '.join(column.name for column in table.columns)})"


@cache
def _many(table: sa.Table, count: int) -> str:
    return f"{_into(table)} VALUES {', '.join([_row(table)] * count)}"


def _row(table: sa.Table) -> str:
    return f"({', '.join('?' * len(table.columns))})"


@cache
def _unnest(table: sa.Table, dialect: sa.Dialect) -> str:
    """One array a column: a statement that stays the same, whatever the number of rows, is read once."""
    return f"SELECT * FROM unnest({', '.join(f'%s::{_type(column, dialect)}[]' for column in table.columns)})"


def _type(column: sa.Column[Any], dialect: sa.Dialect) -> str:
    # As text, and not of its length: a cast to that would cut what is too long instead of refusing it.
    return "text" if isinstance(column.type, sa.String) else column.type.compile(dialect)


@cache
def _adding(table: sa.Table) -> str:
    keys = ", ".join(column.name for column in table.primary_key)
    sums = ", ".join(
        f"{column.name} = {table.name}.{column.name} + excluded.{column.name}"
        for column in table.columns
        if not column.primary_key
    )
    return f"ON CONFLICT ({keys}) DO UPDATE SET {sums}"
