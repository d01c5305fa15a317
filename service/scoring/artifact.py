"""A version on disk: opened only when every check passes, the last of them its own exam."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from service.scoring.catalog import Catalog, ready_half
from service.scoring.device import FLOAT32
from service.scoring.encoder_files import load_encoder
from service.scoring.engine import TORCHSCRIPT, Engine, probe
from service.scoring.features import FeatureEncoder
from service.scoring.files import (
    CATALOG,
    EXAM,
    FORMAT,
    FORMATS,
    MANIFEST,
    MODULE,
    REQUIRED,
    SCALERS,
    ArtifactError,
    is_known_file,
    is_version_name,
    last_line,
    read_json,
    sha256,
)
from service.scoring.predictor import Predictor, RankRequest, RowRequest
from service.scoring.revisions import open_catalog
from service.scoring.scalers import scaler_versions
from service.scoring.schema import FeatureSchema, SchemaError
from service.scoring.values import EncodeError

TOLERANCE = 1e-5
_MANIFEST_KEYS = ("format", "version", "created", "engine", "schema", "files", "libraries", "metrics")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Artifact:
    """An opened version: verified, examined, ready to score."""

    path: Path
    manifest: Mapping[str, Any]
    predictor: Predictor

    @property
    def version(self) -> str:
        return self.predictor.version

    @property
    def encoder(self) -> FeatureEncoder:
        return self.predictor.encoder

    @property
    def engine(self) -> Engine:
        return self.predictor.engine

    @property
    def catalog(self) -> Catalog | None:
        return self.predictor.catalog


def open_artifact(
    path: Path,
    *,
    device: str = "cpu",
    version: str | None = None,
    revision: int = 0,
    halves: Path | None = None,
    precision: str = FLOAT32,
    precision_tolerance: float = 1e-3,
) -> Artifact:
    """Verify and open the version in folder `path`; raises ArtifactError with the reason.

    `version` is the name the manifest must carry, where it is not the folder's own. The exam is taken against revision
    0 of the catalog in float32 on the CPU, and again where device or precision are others, a faster precision within
    its own tolerance. What is given away has revision `revision`, whose items' halves are written to the folder
    `halves` and mapped where one is given, else held in memory.
    """
    manifest = read_manifest(path)
    if manifest["version"] != (version or path.name):
        found, wanted = manifest["version"], version or path.name
        raise ArtifactError(f"{MANIFEST}: it is of version '{found}', the folder is '{wanted}'")
    check_files(path, manifest["files"])
    _check_scikit_learn(str(manifest["libraries"].get("scikit-learn", "unknown")), "the manifest")
    encoder = load_encoder(path)
    for written in scaler_versions(encoder.scalers):
        _check_scikit_learn(written, SCALERS)
    if manifest["schema"] != encoder.schema.to_dict():
        raise ArtifactError(f"{MANIFEST}: its feature schema is not the encoder's")
    catalog = Catalog.load(path / CATALOG, encoder) if encoder.schema.item else None
    engine = Engine.load(path / MODULE, "cpu")
    _check_shapes(engine, encoder)
    corrected = is_corrected(manifest)
    ready = _ready(catalog, engine, halves, keep=not revision)
    predictor = Predictor(str(manifest["version"]), encoder, engine, ready, corrected=corrected)
    exam = read_json(path / EXAM)
    examine(predictor, exam)
    if device != "cpu" or precision != FLOAT32:
        # Only now: ids beyond a table, which end the use of a GPU, would have failed on the CPU.
        engine = Engine.load(path / MODULE, device, encoder.layout)
        predictor = Predictor(predictor.version, encoder, engine, _ready(catalog, engine), corrected=corrected)
        examine_precision(predictor, exam, precision, precision_tolerance)
    if revision:
        predictor.catalog = open_catalog(path, predictor, revision, halves)
    return Artifact(path, manifest, predictor)


def examine_precision(predictor: Predictor, exam: Any, precision: str, tolerance: float) -> None:
    """Compute in `precision` from now on; ArtifactError where that is further off the exam than `tolerance` allows."""
    engine = predictor.engine
    engine.use(precision)
    engine.precision_error = examine(predictor, exam, TOLERANCE if precision == FLOAT32 else tolerance)
    where = (predictor.version, precision, predictor.device, engine.precision_error)
    log.info("version %s in %s on %s: worst error against the exam %.2g", *where)


def _ready(catalog: Catalog | None, engine: Engine, halves: Path | None = None, keep: bool = True) -> Catalog | None:
    """The catalog with its items' half, in the folder `halves` where it is to be kept there."""
    if catalog is None or not engine.has_halves:
        return catalog
    return replace(catalog, half=ready_half(engine, catalog.encoded, halves if keep else None))


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest alone, for listings; raises ArtifactError where it is not one of a known format."""
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict):
        raise ArtifactError(f"{MANIFEST}: an object is needed")
    if manifest.get("format") not in FORMATS:
        raise ArtifactError(
            f"{MANIFEST}: format {manifest.get('format')!r} is not supported, only {FORMATS[0]} to {FORMAT}"
        )
    absent = [key for key in _MANIFEST_KEYS if key not in manifest]
    if absent:
        raise ArtifactError(f"{MANIFEST}: '{absent[0]}' is missing")
    if not all(isinstance(manifest[key], dict) for key in ("schema", "files", "libraries", "metrics")):
        raise ArtifactError(f"{MANIFEST}: 'schema', 'files', 'libraries' and 'metrics' must be objects")
    _check_plain(manifest)
    try:
        FeatureSchema.from_dict(manifest["schema"])
    except SchemaError as error:
        raise ArtifactError(f"{MANIFEST}: {error}") from None
    if manifest["engine"] != TORCHSCRIPT:
        raise ArtifactError(f"{MANIFEST}: engine '{manifest['engine']}' is not supported, only {TORCHSCRIPT}")
    return manifest


def is_corrected(manifest: Mapping[str, Any]) -> bool:
    """Whether the version's module changes its logits before the sigmoid."""
    correction = manifest.get("correction")
    return isinstance(correction, Mapping) and correction.get("kind", "none") != "none"


def _check_plain(value: object) -> None:
    """Refuse what cannot be shown again as JSON: half a surrogate, an integer beyond 64 bits."""
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= one <= "\udfff" for one in value):
        raise ArtifactError(f"{MANIFEST}: a text holds half a surrogate")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ArtifactError(f"{MANIFEST}: an integer is beyond 64 bits")
    if isinstance(value, dict):
        for key, one in value.items():
            _check_plain(key)
            _check_plain(one)
    elif isinstance(value, list):
        for one in value:
            _check_plain(one)


def version_names(root: Path) -> list[str]:
    """Names of the versions under `root`, sorted; work in progress and foreign folders are left out."""
    if not root.is_dir():
        return []
    return sorted(one.name for one in root.iterdir() if is_version_name(one.name) and (one / MANIFEST).is_file())


def examine(predictor: Predictor, exam: Any, tolerance: float = TOLERANCE) -> float:
    """Let the predictor score its exam twice, and give the worst error; raises ArtifactError where it is too large."""
    try:
        requests = [exam_request(entry) for entry in exam["requests"]]
        expected = [np.asarray(scores, np.float64) for scores in exam["scores"]]
        if not requests or len(requests) != len(expected):
            raise ValueError("it holds no requests, or not a list of scores for each")
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{EXAM}: not an exam ({error})") from None
    first, second = _answers(predictor, requests), _answers(predictor, requests)
    worst = 0.0
    for number, (scores, again, wanted) in enumerate(zip(first, second, expected, strict=True)):
        if scores.shape != wanted.shape or not np.isfinite(scores).all():
            raise ArtifactError(f"{EXAM}: request {number} got {scores.shape} scores or some not finite")
        if not np.array_equal(scores, again):
            raise ArtifactError(f"{MODULE}: the same request scores differently each time (training mode?)")
        off = float(np.abs(scores - wanted).max(initial=0.0))
        if not off <= tolerance:
            where = "" if predictor.engine.precision == FLOAT32 else f" in {predictor.engine.precision}"
            raise ArtifactError(f"{EXAM}: the version scores its own exam {off:.2g} off at request {number}{where}")
        worst = max(worst, off)
    return worst


def _answers(predictor: Predictor, requests: Sequence[RowRequest | RankRequest]) -> list[Any]:
    try:
        return [predictor.scores_of(request) for request in requests]
    except (EncodeError, RuntimeError) as error:
        raise ArtifactError(f"{EXAM}: a request cannot be scored ({last_line(error)})") from None


def exam_request(entry: Mapping[str, Any]) -> RowRequest | RankRequest:
    """A request of an exam."""
    if "instances" in entry:
        return RowRequest(entry["instances"])
    return RankRequest(entry["user"], entry["candidates"], entry.get("context", {}))


def check_files(path: Path, files: Mapping[str, Any]) -> None:
    """Refuse a file that is not as the manifest has it; raises ArtifactError naming it."""
    for name in REQUIRED:
        if name not in files:
            raise ArtifactError(f"{MANIFEST}: no hash of {name}")
    for name, digest in files.items():
        if not is_known_file(name):
            raise ArtifactError(f"{MANIFEST}: '{name[:80]}' is no file of a version")
        try:
            found = sha256(path / name)
        except OSError:
            raise ArtifactError(f"{name}: the file is missing or cannot be read") from None
        if found != digest:
            raise ArtifactError(f"{name}: its sha256 is not the manifest's; the file was damaged or changed")


def _check_scikit_learn(written: str, where: str) -> None:
    """Refuse scalers of another major.minor: their attributes may mean something else."""
    try:
        installed = importlib.metadata.version("scikit-learn")
    except importlib.metadata.PackageNotFoundError:
        return  # serving needs none: the state is read out, the exam judges it
    if written.split(".")[:2] != installed.split(".")[:2]:
        raise ArtifactError(
            f"{SCALERS}: written by scikit-learn {written} (says {where}), here is {installed}; train again"
        )
    if written != installed:
        log.warning("scalers were written by scikit-learn %s, here is %s: admitted, same minor", written, installed)


def _check_shapes(engine: Engine, encoder: FeatureEncoder) -> None:
    sample = probe(encoder.layout)
    try:
        scores = engine.forward(sample)
    except (RuntimeError, IndexError) as error:
        raise ArtifactError(f"{MODULE}: its shapes do not fit the feature schema ({last_line(error)})") from None
    if scores.shape != (sample.rows,) or not np.isfinite(scores).all() or scores.min() < 0 or scores.max() > 1:
        raise ArtifactError(f"{MODULE}: it does not give one probability a row")
