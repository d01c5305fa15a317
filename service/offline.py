"""The commands that need no server: `score` a Parquet file, `verify` a version. Each returns its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from service.scoring.artifact import Artifact, open_artifact
from service.scoring.columns import text_column
from service.scoring.device import DeviceError, choose_device
from service.scoring.encoded import Floats
from service.scoring.files import CATALOG, ArtifactError, last_line
from service.scoring.revisions import encode_revision, revision_numbers
from service.scoring.values import DataError

SCORE = "score"
# Rows that are in memory at once, as raw columns, tensors and scores.
BATCH_ROWS = 65_536


class ScoreError(Exception):
    """The file cannot be scored: one plain line that says what and where."""


def score(artifact: Path, source: Path, target: Path, *, device: str) -> int:
    """Write the rows of `source` with their scores to `target`, which appears whole or not at all."""
    try:
        chosen = choose_device(device)
        opened = open_artifact(artifact.resolve(), device=chosen)
        rows = _score(opened, source, target)
    except (ArtifactError, ScoreError, DataError, DeviceError) as error:
        where = f"{source}: " if isinstance(error, DataError) else ""
        where = f"{artifact}: " if isinstance(error, ArtifactError) else where
        print(f"python -m service score: {where}{error}", file=sys.stderr)
        return 1
    print(f"{target}: {rows} rows scored by version '{opened.version}' on {chosen}")
    return 0


def verify(artifact: Path) -> int:
    """Open a version as the service would: hashes, schema, shapes, its own exam, then each catalog revision."""
    path = artifact.resolve()
    try:
        opened = open_artifact(path)
        later = [number for number in revision_numbers(path) if number]
        for number in later:
            encode_revision(path, opened.encoder, number)
    except ArtifactError as error:
        print(f"python -m service verify: {artifact}: {error}", file=sys.stderr)
        return 1
    also = f"; so are its later catalog revisions ({len(later)})" if later else ""
    print(f"{artifact}: version '{opened.version}' is whole and scores its own exam{also}")
    return 0


def _score(artifact: Artifact, source: Path, target: Path) -> int:
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with pq.ParquetFile(source) as file:
            schema = file.schema_arrow
            if len(set(schema.names)) < len(schema.names):
                twice = next(name for name in schema.names if schema.names.count(name) > 1)
                raise ScoreError(f"{source}: it has two columns '{twice}'")
            if SCORE in schema.names:
                raise ScoreError(f"{source}: it has a column '{SCORE}' already; rename it")
            catalog = _catalog(artifact, schema)
            with pq.ParquetWriter(aside, schema.append(pa.field(SCORE, pa.float32()))) as writer:
                for start, batch in _blocks(file):
                    scores = _scores(artifact, batch, start, catalog)
                    writer.write_table(batch.append_column(SCORE, pa.array(scores, pa.float32())))
                rows: int = file.metadata.num_rows
        os.replace(aside, target)
    except (OSError, pa.ArrowException) as error:
        raise ScoreError(f"{source} to {target}: {last_line(error)}") from None
    finally:
        aside.unlink(missing_ok=True)
    return rows


def _blocks(file: pq.ParquetFile) -> Iterator[tuple[int, pa.Table]]:
    """Each block of rows with the number of its first."""
    start = 0
    for batch in file.iter_batches(BATCH_ROWS):
        yield start, pa.Table.from_batches([batch])
        start += batch.num_rows


def _catalog(artifact: Artifact, schema: pa.Schema) -> pa.Table | None:
    """The catalog's columns that the file lacks, where it has the item key; what is absent beyond them is missing."""
    features = artifact.encoder.schema
    absent = [feature for feature in features.features if feature.name not in schema.names]
    items = None
    if features.item is not None and features.item in schema.names:
        items = pq.read_table(artifact.path / CATALOG, partitioning=None)
        names = [feature.name for feature in absent if feature.side == "item" and feature.name in items.column_names]
        absent = [feature for feature in absent if feature.name not in names]
        items = items.select(names) if names else None
    for feature in absent:
        print(f"warning: no column '{feature.name}': it is missing in every row", file=sys.stderr)
    return items


def _scores(artifact: Artifact, rows: pa.Table, start: int, items: pa.Table | None) -> Floats:
    try:
        scores = artifact.engine.forward(artifact.encoder.encode_table(_with_items(artifact, rows, items)))
    except DataError as error:
        raise DataError(error.column, error.reason, None if error.row is None else start + error.row) from None
    bad = ~np.isfinite(scores)
    if bad.any():
        raise ScoreError(f"the version's score is not finite at row {start + int(bad.argmax()) + 1}")
    return scores


def _with_items(artifact: Artifact, rows: pa.Table, items: pa.Table | None) -> pa.Table:
    key, catalog = artifact.encoder.schema.item, artifact.catalog
    if items is None or key is None or catalog is None:
        return rows
    texts = text_column(key, rows.column(key))
    found = catalog.items.find(texts.distinct).tolist()
    places = [*(place if place >= 0 else None for place in found), None]
    index = pa.array([places[code] for code in texts.codes.tolist()], pa.int64())
    for name in items.column_names:
        rows = rows.append_column(name, items.column(name).take(index))
    return rows
