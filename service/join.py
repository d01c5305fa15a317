"""python -m service join: captured requests with the clicks that were counted for them, as a table to train on.

A row is an item that was shown, with its features as they were sent; nothing is computed anew, so nothing can differ
from what was served. Clicks are looked up in the state store by their events' keys, which stay there for the
attribution window: what is older cannot be told from what was never clicked, and is left out.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from service.experiments.events import click_key
from service.scoring.artifact import read_manifest
from service.scoring.files import ArtifactError, last_line
from service.scoring.revisions import read_items, revision_numbers
from service.state import StateError, StateStore

LABEL = "clicked"
# Beside the features; one whose name is also a feature's is written as served_NAME.
COLUMNS = ("prediction_id", "at", "unit", "experiment", "version", "epoch", "reason", "propensity", "item", "score")

Row = dict[str, Any]


class JoinError(Exception):
    """What was captured cannot be joined: one plain line that says what and where."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for; predictions younger than `settle` seconds may still be clicked."""

    capture: Path
    state: str
    output: Path
    artifacts: Path | None = None
    hours: float = 24.0
    settle: float = 0.0


def join(wish: Wish) -> int:
    """Write the table; the exit code."""
    try:
        _check_state(wish.state)
        rows, left = _captured(wish, time.time())
        with StateStore.open(wish.state) as store:
            _label(rows, store)
        _fill(rows, wish.artifacts)
        _write(rows, wish.output)
    except (JoinError, StateError, ArtifactError) as error:
        print(f"python -m service join: {error}", file=sys.stderr)
        return 1
    clicked = sum(row[LABEL] for row in rows)
    beside = f"; {left} rows are younger than asked for, or older than the attribution window" if left else ""
    print(f"{wish.output}: {len(rows)} rows, {clicked} of them clicked{beside}")
    return 0


def _check_state(url: str) -> None:
    """An empty store would be made where none is, and then nothing was ever clicked."""
    path = url.removeprefix("sqlite:///")
    if path != url and not Path(path).is_file():
        raise JoinError(f"--state: no file {path}")


def _captured(wish: Wish, now: float) -> tuple[list[Row], int]:
    """The rows that were shown and can be joined, and how many cannot."""
    found, left = list[Row](), 0
    files = sorted(wish.capture.glob("captured-*.parquet"))
    if not files:
        raise JoinError(f"{wish.capture}: no captured-*.parquet in it")
    for file in files:
        try:
            rows = pq.read_table(file, partitioning=None).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise JoinError(f"{file}: {last_line(error)}") from None
        shown = [row for row in rows if row["shown"]]
        ready = [row for row in shown if wish.settle <= now - row["at"] < wish.hours * 3600]
        found += ready
        left += len(shown) - len(ready)
    if not found:
        raise JoinError(f"{wish.capture}: none of its {left} rows can be joined now")
    return found, left


def _label(rows: Sequence[Row], store: StateStore) -> None:
    keys = [click_key(row["prediction_id"], row["item"]) for row in rows]
    with store.reading() as view:
        clicked = view.counts.known_keys({key for key in keys if key is not None})
    for row, key in zip(rows, keys, strict=True):
        row[LABEL] = int(key in clicked)


def _fill(rows: Sequence[Row], artifacts: Path | None) -> None:
    """Turn each row's JSON into features; where `artifacts` are given, an item's own come from its version's newest
    catalog unless they were sent."""
    items: dict[str, Mapping[str, Row]] = {}
    for row in rows:
        sent = json.loads(row["features"])  # not orjson, which makes floats of large integers
        if artifacts is not None:
            version = row["version"]
            if version not in items:
                items[version] = _items(artifacts / version)
            sent = {**items[version].get(row["item"], {}), **sent}
        row["features"] = sent


def _items(path: Path) -> Mapping[str, Row]:
    """The item features of a version's newest catalog, by the item's id as a text."""
    schema, revisions = read_manifest(path)["schema"], revision_numbers(path)
    if not revisions:
        return {}
    key = schema["item"]
    names = [one["name"] for one in schema["features"] if one["side"] == "item"]
    table = read_items(path, revisions[-1])
    chosen = table.select([key, *(name for name in names if name in table.column_names and name != key)])
    return {str(row[key]): row for row in chosen.to_pylist()}


def _write(rows: Sequence[Row], output: Path) -> None:
    aside = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_table(rows), aside)
        os.replace(aside, output)
    except (OSError, pa.ArrowException) as error:
        raise JoinError(f"{output}: {last_line(error)}") from None
    finally:
        aside.unlink(missing_ok=True)


def _table(rows: Sequence[Row]) -> pa.Table:
    names = sorted({name for row in rows for name in row["features"]})
    columns = {name: _column(row["features"].get(name) for row in rows) for name in names}
    for name in COLUMNS:
        columns[f"served_{name}" if name in columns else name] = _column(row[name] for row in rows)
    if LABEL in columns:
        raise JoinError(f"a feature is called '{LABEL}', which is the label's name")
    return pa.table({**columns, LABEL: _column(row[LABEL] for row in rows)})


def _column(values: Iterable[Any]) -> pa.Array:
    """Values of one type; as texts where they are of several."""
    listed = list(values)
    try:
        return pa.array(listed)
    except (pa.ArrowException, OverflowError):
        return pa.array([None if value is None else str(value) for value in listed])
