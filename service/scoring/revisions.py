"""Catalog revisions on disk: the version's own catalog is 0, those added later stand in a folder with their records."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from service.scoring.catalog import Catalog, ready_half
from service.scoring.features import FeatureEncoder
from service.scoring.files import (
    CATALOG,
    CATALOGS,
    MANIFEST,
    ArtifactError,
    catalog_file,
    catalog_record,
    last_line,
    read_json,
    recorded_revision,
    sha256,
)
from service.scoring.predictor import Predictor
from service.scoring.values import DataError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Revision:
    """One revision as a listing shows it: I rows; None where its file or record cannot be read."""

    number: int
    rows: int | None
    created: str | None


def revision_numbers(path: Path) -> list[int]:
    """The revisions of the version in folder `path`, ascending; none where it has no catalog."""
    if not (path / CATALOG).is_file():
        return []
    try:
        names = [one.name for one in (path / CATALOGS).iterdir()]
    except OSError:
        names = []
    return sorted([0, *(number for name in names if (number := recorded_revision(name)) is not None)])


def list_revisions(path: Path) -> list[Revision]:
    """What is told of each revision; hashes are not looked at."""
    return [_told(path, number) for number in revision_numbers(path)]


def read_items(path: Path, revision: int) -> pa.Table:
    """The raw item table of a revision, checked against its hash; raises ArtifactError naming the file."""
    name = catalog_file(revision)
    wanted, rows = _expected(path, revision)
    try:
        if sha256(path / name) != wanted:
            where = MANIFEST if revision == 0 else catalog_record(revision)
            raise ArtifactError(f"{name}: its sha256 is not that of {where}; the file was damaged or changed")
        table = pq.read_table(path / name, partitioning=None)
    except FileNotFoundError:
        raise ArtifactError(f"{name}: the file is missing") from None
    except (pa.ArrowException, OSError) as error:
        raise ArtifactError(f"{name}: cannot be read ({last_line(error)})") from None
    if rows is not None and table.num_rows != rows:
        raise ArtifactError(f"{name}: it holds {table.num_rows} items, its record says {rows}")
    return table


def encode_revision(path: Path, encoder: FeatureEncoder, revision: int) -> Catalog:
    """The catalog of a revision without the items' half; raises ArtifactError naming the file and the reason."""
    if encoder.schema.item is None:
        raise ArtifactError("the version has no item key, and so no catalog")
    try:
        catalog = Catalog.encode(read_items(path, revision), encoder)
    except DataError as error:
        raise ArtifactError(f"{catalog_file(revision)}: {error}") from None
    return replace(catalog, revision=revision)


def open_catalog(path: Path, predictor: Predictor, revision: int, halves: Path | None = None) -> Catalog:
    """The catalog of a revision, ready for `predictor.catalog`; raises ArtifactError. Blocks, changes nothing.

    The items' halves are written to the folder `halves` where one is given, and mapped.
    """
    catalog = encode_revision(path, predictor.encoder, revision)
    if not predictor.engine.has_halves:
        return catalog
    return replace(catalog, half=ready_half(predictor.engine, catalog.encoded, halves))


def _expected(path: Path, revision: int) -> tuple[str, int | None]:
    """The hash and, of a revision added later, the number of rows that a revision's file must have."""
    if revision == 0:
        files: dict[str, Any] = _get(read_json(path / MANIFEST), "files", dict, MANIFEST)
        return _get(files, CATALOG, str, MANIFEST), None
    record = _record(path, revision)
    return _get(record, "sha256", str, catalog_record(revision)), _get(record, "rows", int, catalog_record(revision))


def _record(path: Path, revision: int) -> Any:
    try:
        return read_json(path / catalog_record(revision))
    except ArtifactError as error:
        raise ArtifactError(f"{CATALOGS}/{error}") from None


def _get(record: Any, key: str, kind: type[T], name: str) -> T:
    value = record.get(key) if isinstance(record, dict) else None
    if not isinstance(value, kind):
        raise ArtifactError(f"{name}: '{key}' is missing or not as it must be")
    return value


def _told(path: Path, number: int) -> Revision:
    rows: int | None = None
    created: str | None = None
    with suppress(ArtifactError, OSError, pa.ArrowException):
        if number == 0:
            rows = pq.read_metadata(path / CATALOG).num_rows
            created = _get(read_json(path / MANIFEST), "created", str, MANIFEST)
        else:
            record, name = _record(path, number), catalog_record(number)
            rows, created = _get(record, "rows", int, name), _get(record, "created", str, name)
    return Revision(number, rows, created)
