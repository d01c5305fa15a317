"""Scores a part of some data with a published version, split at that version's own cuts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from service.scoring.artifact import Artifact, open_artifact
from service.scoring.encoded import Floats, Ints
from service.scoring.files import ArtifactError
from training import metrics
from training.config import Config, ConfigError
from training.data import Dataset, read_dataset
from training.errors import DataFault
from training.split import PARTS, Cuts

SPLITS = (*PARTS, "all")
CHUNK_ROWS = 65_536


def evaluate_version(
    folder: Path, path: Path, *, split: str, device: str, cache: Path | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Metrics of the rows of PATH in `split`, and notes on the data; raises ArtifactError or DataFault."""
    artifact = opened(folder, device)
    with streamed(cache) as home:
        data, rows = rows_of(artifact, path, split, home)
        if not len(rows):
            raise DataFault(f"{path}: no row lies in the version's {split} part")
        units = None if data.units is None else data.units[rows]
        return metrics.evaluate(data.labels[rows], scores_of(artifact, data, rows), units), data.notes


def opened(folder: Path, device: str) -> Artifact:
    """A published version; raises ArtifactError that begins with its folder: a command may name several."""
    try:
        return open_artifact(folder, device=device)
    except ArtifactError as error:
        raise ArtifactError(f"{folder}: {error}") from None


@contextmanager
def streamed(cache: Path | None) -> Iterator[Path]:
    """Where rows are streamed to, so that memory holds their labels and scores alone: `cache`, as a fit's, which may
    hold them already, or a folder that goes when it is done with."""
    if cache is not None:
        yield cache
        return
    with tempfile.TemporaryDirectory(prefix="twinrank-") as folder:
        yield Path(folder)


def rows_of(artifact: Artifact, path: Path, split: str, cache: Path) -> tuple[Dataset, Ints]:
    """The data as the version reads it, mapped from `cache`, and which rows lie in `split` by its own cuts."""
    config, cuts = stored_split(artifact)
    data = read_dataset(path, config, seed=cuts.seed, part=split, cache=cache)
    return data, np.arange(len(data.labels)) if split == "all" else cuts.parts(data.positions)[split]


def stored_split(artifact: Artifact) -> tuple[Config, Cuts]:
    """The config and the cuts that a version was trained with; raises ArtifactError."""
    try:
        return Config.from_dict(artifact.manifest["training_config"]), Cuts.from_dict(artifact.manifest["split"])
    except (KeyError, TypeError, ConfigError) as error:
        raise ArtifactError(f"manifest.json: no training config or split to evaluate by ({error})") from None


def scores_of(artifact: Artifact, data: Dataset, rows: Ints) -> Floats:
    """Probabilities of the chosen rows by a published version."""
    chunks = [rows[start : start + CHUNK_ROWS] for start in range(0, len(rows), CHUNK_ROWS)]
    return np.concatenate([artifact.engine.forward(data.encode(artifact.encoder, chunk)) for chunk in chunks])
