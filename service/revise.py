"""The command `catalog`: adds a catalog revision to a published version."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from service.scoring.artifact import check_files, read_manifest
from service.scoring.catalog import Catalog
from service.scoring.encoder_files import load_encoder
from service.scoring.features import FeatureEncoder
from service.scoring.files import (
    CATALOGS,
    ArtifactError,
    catalog_file,
    catalog_record,
    last_line,
    sha256,
    sync,
    write_json,
)
from service.scoring.overlay import difference, lay_over
from service.scoring.revisions import read_items, revision_numbers
from service.scoring.schema import FeatureSchema
from service.scoring.schema_checks import first_repeated, nearest
from service.scoring.values import DataError


class ItemsError(Exception):
    """The item file cannot become a revision: one plain line that says what and where."""


def revise(artifact: Path, items: Path, *, replace: bool) -> int:
    """Add the items of a Parquet file over the newest revision's, or in place of them; the exit code.

    Nothing is written where a value of the file is none that the version could encode.
    """
    path = artifact.resolve()
    try:
        manifest = read_manifest(path)
        with _alone(path):
            check_files(path, manifest["files"])
            done = _revise(path, items, replace=replace)
    except (ItemsError, DataError) as error:
        return _fail(f"{items}: {error}")
    except (ArtifactError, OSError, pa.ArrowException) as error:
        return _fail(f"{artifact}: {last_line(error)}")
    print(json.dumps({"version": manifest["version"], **done}))
    return 0


def _revise(path: Path, source: Path, *, replace: bool) -> dict[str, Any]:
    encoder = load_encoder(path)
    if encoder.schema.item is None:
        raise ArtifactError("the version has no item key, and so no catalog")
    items = _read(source)
    Catalog.encode(items, encoder)
    newest = max(revision_numbers(path), default=0)
    base = read_items(path, newest)
    table = items if replace else lay_over(base, items, encoder.schema)
    found = difference(base, table, encoder.schema)
    _warn(items, base, encoder.schema, kept=not replace)
    _write(path, newest + 1, table, encoder)
    return {"revision": newest + 1, "rows": table.num_rows, **asdict(found)}


def _read(source: Path) -> pa.Table:
    try:
        with pq.ParquetFile(source) as file:
            table = file.read()
    except (OSError, pa.ArrowException) as error:
        raise ItemsError(f"not readable as Parquet ({last_line(error)})") from None
    if twice := first_repeated(table.column_names):
        raise ItemsError(f"it has two columns '{twice}'")
    if not table.num_rows:
        raise ItemsError("it holds no items")
    return table


def _warn(items: pa.Table, base: pa.Table, schema: FeatureSchema, *, kept: bool) -> None:
    """Say which columns the file lacks, and which new ones no model reads though their names look as if."""
    features = [feature.name for feature in schema.of_side("item")]
    for name in features:
        if name not in items.column_names:
            rest = "items that are there keep theirs" if kept else "it is missing in every item"
            print(f"warning: no column '{name}': {rest}", file=sys.stderr)
    for name in items.column_names:
        if name not in (*features, schema.item, *base.column_names) and (hint := nearest(name, features)):
            print(f"warning: '{name}' is no item feature of this version{hint}; kept for display", file=sys.stderr)


def _write(path: Path, number: int, table: pa.Table, encoder: FeatureEncoder) -> None:
    """Write the items, then their record, each beside and renamed: the revision is there once its record is."""
    folder, target, record = path / CATALOGS, path / catalog_file(number), path / catalog_record(number)
    folder.mkdir(exist_ok=True)
    # Fixed names, for one writer at a time: what a killed one left is written over.
    asides = [folder / f".{one.name}" for one in (target, record)]
    try:
        pq.write_table(table, asides[0])
        Catalog.load(asides[0], encoder)
        _put(asides[0], target)
        created = datetime.now(UTC).isoformat(timespec="milliseconds")
        write_json(asides[1], {"sha256": sha256(target), "rows": table.num_rows, "created": created})
        _put(asides[1], record)
    except BaseException:
        for one in [*asides, *([] if record.exists() else [target])]:
            one.unlink(missing_ok=True)
        with suppress(OSError):  # it stays where it holds other revisions
            folder.rmdir()
        raise
    sync(path)


def _put(aside: Path, target: Path) -> None:
    """Give a file its name once it is durable, and make that durable too."""
    sync(aside)
    os.replace(aside, target)
    sync(target.parent)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One writer a version, from the reading of the newest revision on: the next one builds on what this one adds."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _fail(reason: str) -> int:
    print(f"python -m service catalog: {reason}", file=sys.stderr)
    return 1
