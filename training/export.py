"""From a trained model to a published version: the module scripted, the exam set, the manifest filled."""

from __future__ import annotations

import importlib.metadata
import math
import subprocess
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from service.scoring.encoded import Encoded, Ints
from service.scoring.features import FeatureEncoder
from service.scoring.files import check_room
from service.scoring.layout import MISSING, Layout
from service.scoring.publish import Draft, libraries, publish
from training.config import Config
from training.data import Dataset
from training.errors import FitError
from training.exam import make_exam
from training.halves import HalvedWideDeep
from training.model import WideDeep
from training.split import Cuts

_CODE = 1 << 20  # bytes that a module takes beside its weights, at most


def publish_version(
    artifacts: Path,
    version: str,
    model: WideDeep,
    encoder: FeatureEncoder,
    data: Dataset,
    parts: Mapping[str, Ints],
    config: Config,
    catalog: pa.Table | None,
    manifest: Mapping[str, Any],
    pages: Mapping[str, str],
) -> Path:
    """Publish the model (on the CPU, as it stands) under `version`, with `pages` for people to read.

    Raises ArtifactError, or FitError where a score is not finite; nothing is visible then.
    """
    model.eval()
    exam = make_exam(encoder.schema, data.table, parts["valid"], catalog, config.train.seed)
    draft = Draft(
        version=version,
        save_module=lambda path: save_module(model, encoder.layout, path),
        encoder=encoder,
        catalog=catalog,
        requests=exam.requests,
        scores=[_finite(eager_scores(model, encoder.encode_rows(rows))) for rows in exam.rows],
        manifest=manifest,
        pages=pages,
    )
    return publish(artifacts, draft)


def save_module(model: WideDeep, layout: Layout, path: Path) -> None:
    """Script the model with its halves and save it, unfrozen: a load checks its parameters and freezes it then."""
    if model.training:
        raise ValueError("a model in training mode would score at random; call eval() first")
    module = HalvedWideDeep(model, layout).eval()
    check_room(path.parent, sum(one.numel() * one.element_size() for one in module.state_dict().values()) + _CODE)
    with warnings.catch_warnings():
        # TorchScript is deprecated in torch; this is the one place that writes it, and the manifest names the engine.
        warnings.filterwarnings("ignore", message=".*torch.jit.*", category=DeprecationWarning)
        torch.jit.save(torch.jit.script(module), path)


def eager_scores(model: WideDeep, rows: Encoded) -> list[float]:
    """Probabilities of encoded rows by the eager model, on the CPU."""
    with torch.inference_mode():
        values = [torch.from_numpy(bag.values) for bag in rows.bags]
        offsets = [torch.from_numpy(bag.offsets) for bag in rows.bags]
        found = model(torch.from_numpy(rows.numerics), torch.from_numpy(rows.ids), values, offsets)
    return [float(score) for score in found]


def _finite(scores: list[float]) -> list[float]:
    if not all(map(math.isfinite, scores)):
        raise FitError("the trained model's score of a row is not finite; a lower learning rate may help")
    return scores


def manifest(
    config: Config,
    data: Dataset,
    cuts: Cuts,
    parts: Mapping[str, Ints],
    metrics: Mapping[str, Any],
    command: str,
    device: str,
) -> dict[str, Any]:
    """The trainer's own entries of a manifest."""
    return {
        "training_config": config.to_dict(),
        "seed": config.train.seed,
        "command": command,
        "package": {"name": "twinrank", "version": package_version(), "commit": package_commit()},
        "data": {"files": dict(data.files), "rows": len(data.labels)},
        "split": {**cuts.to_dict(), "rows": {name: len(rows) for name, rows in parts.items()}},
        "metrics": dict(metrics),
        "libraries": libraries(),
        "trained_on": {"device": device, "threads": torch.get_num_threads()},
    }


def values(encoder: FeatureEncoder, encoded: Encoded) -> dict[str, Any]:
    """How many values of each feature are missing, or unknown, in rows that training did not see: what to expect when
    the version serves."""
    names = [feature.name for feature in encoder.schema.features]
    counts = {"missing": encoded.missing, "unknown": encoded.unknown}
    return {"rows": encoded.rows} | {
        kind: {name: found.get(name, 0) for name in names} for kind, found in counts.items()
    }


def package_version() -> str:
    try:
        return importlib.metadata.version("twinrank")
    except importlib.metadata.PackageNotFoundError:  # run from a tree that is not installed
        return "unknown"


def package_commit() -> str | None:
    """The commit of the repository this package lies in, None where it does not lie in its own."""
    root = Path(__file__).resolve().parents[1]
    try:
        asked = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--show-toplevel", "HEAD"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    top, commit = asked.stdout.split("\n")[:2]
    return commit if Path(top) == root else None


def flat_columns(layout: Layout, train: Encoded) -> list[str]:
    """A note for each column that holds one value only, or none, in the training part: it can teach nothing."""
    notes = []
    # All columns in one pass: they may be mapped, and a pass for each would read the whole file each time.
    flat_numerics = np.flatnonzero(train.numerics.min(axis=0) == train.numerics.max(axis=0))
    for n in flat_numerics.tolist():
        notes.append(f"column '{layout.numerics[n].name}' is constant or all missing in the training part")
    for n in np.flatnonzero(train.ids.min(axis=0) == train.ids.max(axis=0)).tolist():
        notes += _flat(layout.ids[n].name, int(train.ids[0, n]))
    for column, bag in zip(layout.bags, train.bags, strict=True):
        if len(bag.values) == train.rows and bag.values.min() == bag.values.max():
            notes += _flat(column.name, int(bag.values[0]))
    return notes


def _flat(name: str, value: int) -> list[str]:
    if value == MISSING:
        return [f"column '{name}' is all missing in the training part"]
    return [f"column '{name}' is constant in the training part"]
