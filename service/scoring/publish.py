"""Publishing: write beside, examine with the serving code, make durable, rename."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from service.scoring.artifact import open_artifact
from service.scoring.encoder_files import save_encoder
from service.scoring.engine import TORCHSCRIPT
from service.scoring.features import FeatureEncoder
from service.scoring.files import (
    CATALOG,
    EXAM,
    FORMAT,
    MANIFEST,
    MODULE,
    ArtifactError,
    is_version_name,
    named,
    sha256,
    sync,
    sync_tree,
    write_json,
)

_LIBRARIES = ("torch", "numpy", "scikit-learn", "joblib", "pyarrow")


@dataclass(frozen=True, slots=True)
class Draft:
    """All that a version is made of. `save_module` writes the TorchScript module to a path; `requests` are raw exam
    entries as in /predict (row or ranking form), `scores` the eager training model's, a list for each; `manifest`
    holds the trainer's own entries (metrics, training config, seed, command, data hashes, split …)."""

    version: str
    save_module: Callable[[Path], None]
    encoder: FeatureEncoder
    catalog: pa.Table | None
    requests: Sequence[Mapping[str, Any]]
    scores: Sequence[Sequence[float]]
    manifest: Mapping[str, Any]
    pages: Mapping[str, str] = field(default_factory=dict)  # texts for people to read, by file name


def check_publishable(root: Path, version: str) -> None:
    """Refuse a bad or taken name before any work is done; raises ArtifactError."""
    if not is_version_name(version):
        raise ArtifactError(
            f"'{version}' cannot name a version: letters, digits, '.', '_' and '-' only, at most 64, not 'weights'"
        )
    if (root / version).exists():
        raise ArtifactError(f"version '{version}' exists already in {root}; choose another name")


def publish(root: Path, draft: Draft) -> Path:
    """Write, examine and publish a version; returns its folder. Raises ArtifactError; nothing is visible then."""
    check_publishable(root, draft.version)
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{draft.version}-", dir=root))
    try:
        folder.chmod(0o755)  # mkdtemp's own 0700 would hide the version from a service of another user
        with named(folder):
            _write(folder, draft)
        open_artifact(folder, version=draft.version)
        sync_tree(folder)
        target = root / draft.version
        if target.exists():
            raise ArtifactError(f"version '{draft.version}' appeared in {root} meanwhile; choose another name")
        os.rename(folder, target)
        sync(root)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return target


def _write(folder: Path, draft: Draft) -> None:
    save_encoder(draft.encoder, folder)
    draft.save_module(folder / MODULE)
    if draft.catalog is not None:
        pq.write_table(draft.catalog, folder / CATALOG)
    write_json(folder / EXAM, {"requests": list(draft.requests), "scores": [list(scores) for scores in draft.scores]})
    for name, text in draft.pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = {
        "format": FORMAT,
        "version": draft.version,
        "created": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "engine": TORCHSCRIPT,
        "schema": draft.encoder.schema.to_dict(),
        "libraries": libraries(),
        "metrics": {},
        **draft.manifest,
        "files": {str(path.relative_to(folder)): sha256(path) for path in files},
    }
    write_json(folder / MANIFEST, manifest)


def libraries() -> dict[str, str]:
    """Versions of what a version on disk depends on."""
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"python": platform.python_version(), **versions}
