"""Every file name of a version on disk, and how files are hashed and written."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FORMAT = 2
FORMATS = (1, 2)  # that can be read; 2 brought the report, the model card and corrected scores

MANIFEST = "manifest.json"
MODULE = "model.pt"
ENCODER = "encoder.json"
SCALERS = "scalers.joblib"
VOCABULARIES = "vocabularies"
CATALOG = "catalog.parquet"
CATALOGS = "catalogs"
EXAM = "exam.json"
REPORT = "report.html"
CARD = "MODEL_CARD.md"
REQUIRED = (MODULE, ENCODER, SCALERS, EXAM)

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VOCABULARY = re.compile(rf"{VOCABULARIES}/\d{{4}}\.json")
_RECORD = re.compile(r"([1-9]\d{0,8})\.json")


class ArtifactError(Exception):
    """A version that cannot be opened or published: one plain line that names the file and the reason."""


def is_version_name(name: str) -> bool:
    """Whether `name` may name a version: never a path, and not reserved."""
    return _VERSION.fullmatch(name) is not None and name != "weights"


def vocabulary_file(position: int) -> str:
    """The vocabulary of the feature at `position`; numbered, since a feature's name must never become a path."""
    return f"{VOCABULARIES}/{position:04d}.json"


def catalog_file(revision: int) -> str:
    """The items of a catalog revision; 0 is the one that the manifest lists."""
    return f"{CATALOGS}/{revision}.parquet" if revision else CATALOG


def catalog_record(revision: int) -> str:
    """What is told of a revision added later, which is there once this file is."""
    return f"{CATALOGS}/{revision}.json"


def recorded_revision(name: str) -> int | None:
    """The revision whose record has this name inside its folder; None where it is no record's."""
    found = _RECORD.fullmatch(name)
    return int(found[1]) if found else None


def is_known_file(name: str) -> bool:
    """Whether a manifest may list `name` as a file of the version."""
    return name in (*REQUIRED, CATALOG, REPORT, CARD) or _VOCABULARY.fullmatch(name) is not None


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path) -> Any:
    """A strict JSON file; raises ArtifactError naming it."""
    try:
        return json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except FileNotFoundError:
        raise ArtifactError(f"{path.name}: the file is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ArtifactError(f"{path.name}: not readable as JSON ({error})") from None


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n", encoding="utf-8")


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Give an OSError that names no file, as one of writing does not, the path that was being written."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error


def check_room(folder: Path, size: int) -> None:
    """Raise OSError where `size` bytes do not fit: what torch writes aborts the process on a full disk."""
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def last_line(error: Exception) -> str:
    """The part of an exception that names the cause: libraries put their own stack above it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1][:200]


def sync_tree(folder: Path) -> None:
    """Make every file and folder below durable before the folder gets its visible name."""
    for path in [*folder.rglob("*"), folder]:
        sync(path)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
