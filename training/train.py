"""`fit`, top to bottom: rows → parts → features → model → epochs → metrics → a published version."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Optimizer

from service.scoring.device import allowed_cores
from service.scoring.encoded import Floats, Ints
from service.scoring.features import FeatureEncoder
from service.scoring.files import CARD, REPORT
from service.scoring.publish import check_publishable
from service.scoring.values import DataError
from training import calibration, export, metrics
from training.batches import Batch
from training.bins import numbers_of, with_edges
from training.config import Config, TrainConfig
from training.data import Dataset, check_classes, read_dataset
from training.errors import FitError
from training.leakage.report import look_for_leaks
from training.model import WideDeep
from training.negatives import kept_rows
from training.optimizers import build_optimizers
from training.progress import Progress
from training.report.card import card
from training.report.evidence import Evidence
from training.report.importance import importances
from training.report.page import page
from training.schedule import Schedule
from training.slices import slices
from training.unknowns import unknown_shares
from training.warm import warm_start
from training.watched import watched

log = logging.getLogger("training")

SCORE_ROWS = 65_536  # rows a forward takes when nothing is learned: bounds memory, large enough not to cost time


@dataclass(frozen=True, slots=True)
class Epoch:
    """What one epoch came to."""

    number: int
    loss: float  # mean log loss over the training rows as they were met, dropout and unknown ids included
    rows_per_second: float
    valid: dict[str, Any]


@dataclass(slots=True)
class Best:
    """The epoch to publish: the best validation AUC, or the last epoch where that is undefined."""

    epoch: Epoch | None = None
    state: dict[str, Tensor] = field(default_factory=dict)

    def offer(self, epoch: Epoch, model: WideDeep) -> bool:
        """Keep the epoch if it is better; says whether it was."""
        auc = epoch.valid["auc"]
        best = self.epoch.valid["auc"] if self.epoch else None
        if self.epoch is not None and best is not None and (auc is None or auc <= best):
            return False
        self.epoch, self.state = epoch, copy.deepcopy(model.state_dict())
        return True


def main(
    config: Config, path: Path, artifacts: Path, version: str, *, device: str, command: str, strict: bool = False
) -> Path:
    """Train on PATH and publish `version` under `artifacts`; returns its folder.

    Raises DataFault, LeakFault (`strict` alone), FitError, ArtifactError: nothing visible is left then.
    """
    check_publishable(artifacts, version)
    torch.set_num_threads(min(torch.get_num_threads(), allowed_cores()))  # OMP_NUM_THREADS and containers' limits
    torch.manual_seed(config.train.seed)  # initial weights and dropout; shuffles have a generator of their own

    # ---- rows and parts: nothing below is fitted on a row that is not in parts["train"]
    data = read_dataset(path, config, seed=config.train.seed)
    cuts = data.cut(config)
    parts = cuts.parts(data.positions)
    check_classes(data.labels[parts["train"]], config.data.label)
    catalog = data.catalog(config, parts["train"])
    parts["train"] = kept_rows(parts["train"], data.labels, config.train.negatives, config.train.seed)
    log.info("%d rows: %s; device %s", len(data.labels), ", ".join(f"{len(v)} {k}" for k, v in parts.items()), device)

    # ---- features: the encoder that serving will use, fitted here
    try:
        rows = data.table.take(parts["train"])
        numbers = partial(numbers_of, rows)
        encoder = FeatureEncoder.fit(with_edges(config.schema, numbers, data.labels[parts["train"]]), rows)
    except DataError as error:
        raise data.fault(error, parts["train"]) from None
    encoded = {name: data.encode(encoder, rows) for name, rows in parts.items()}
    notes = [*data.notes, *export.flat_columns(encoder.layout, encoded["train"])]
    for note in notes:
        log.warning("warning: %s", note)
    leakage = look_for_leaks(data, cuts.parts(data.positions), config)  # with the negatives that are not trained on
    leakage.tell(strict=strict)
    batches = {name: Batch.of(encoded[name], data.labels[rows], device) for name, rows in parts.items()}
    ordered = data.times[parts["train"]] if data.times is not None and config.split.kind != "random" else None
    shares = unknown_shares(encoder.layout, encoded["train"], ordered, len(parts["valid"]) / len(parts["train"]))

    # ---- model
    model = WideDeep(encoder.layout, config.model.hidden, config.model.dropout, config.model.norm)
    model.start_at(float(data.labels[parts["train"]].mean()))
    model.correction = math.log(config.train.negatives)
    if config.train.warm_start:
        warm_start(model, encoder, Path(config.train.warm_start))
    model.to(device)

    # ---- epochs
    best, history = Best(), []
    optimizers = build_optimizers(model, config.train)
    schedule = Schedule(optimizers, config.train, math.ceil(batches["train"].rows / config.train.batch_size))
    with Progress(artifacts, version, config.train, batches["train"].rows) as progress:
        steps = (optimizers, schedule)
        for epoch in _epochs(model, batches, config.train, shares, _units(data, parts["valid"]), progress, steps):
            history.append(epoch)
            better = best.offer(epoch, model)
            schedule.epoch(better)
            progress.epoch(epoch.number, epoch.loss, epoch.rows_per_second, epoch.valid, better)
            if best.epoch and epoch.number - best.epoch.number >= config.train.patience:
                break
    assert best.epoch is not None  # a config has at least one epoch
    model.load_state_dict(best.state)
    if best.epoch.valid["auc"] is None:
        log.warning(
            "warning: validation AUC is undefined (%s); the last epoch is published", best.epoch.valid["reason"]
        )

    # ---- metrics of the epoch that is published, and the version itself
    plain = _metrics(model, data, parts, batches)
    correction = calibration.correct(model, config.train.calibration, batches["valid"], data.labels[parts["valid"]])
    found = plain if correction["kind"] == "none" else _metrics(model, data, parts, batches)
    judged = "test" if len(parts["test"]) else "valid"
    shown = scores(model, batches[judged])
    sliced = slices(data, config, parts["train"], parts[judged], shown)
    labels = data.labels[parts[judged]]
    worth = importances(partial(scores, model), encoder.layout, encoded[judged], labels, device, config.train.seed)
    before = None if correction["kind"] == "none" else calibration.uncorrected(model, batches[judged])
    model.to("cpu")
    manifest = export.manifest(config, data, cuts, parts, found, command, device) | {
        "notes": notes,
        "leakage": leakage.to_dict(),
        "correction": correction | ({} if correction["kind"] == "none" else {"uncorrected": plain}),
        "slices": {"part": judged, "metrics": sliced},
        "unknown_shares": dict(
            zip([c.name for c in (*encoder.layout.ids, *encoder.layout.bags)], [*shares[0], *shares[1]], strict=True)
        ),
        "best_epoch": best.epoch.number,
        "epochs": [_record(epoch) for epoch in history],
    }
    evidence = Evidence(version, manifest, judged, labels, shown, before, worth)
    pages = {REPORT: page(evidence), CARD: card(evidence)}
    return export.publish_version(artifacts, version, model, encoder, data, parts, config, catalog, manifest, pages)


def _metrics(
    model: WideDeep, data: Dataset, parts: dict[str, Ints], batches: dict[str, Batch]
) -> dict[str, dict[str, Any]]:
    """Of each part but the training part."""
    return {
        name: metrics.evaluate(data.labels[rows], finite_scores(model, batches[name], name), _units(data, rows))
        for name, rows in parts.items()
        if name != "train"
    }


def scores(model: WideDeep, rows: Batch) -> Floats:
    """Probabilities (rows,) of the model as it stands, no dropout."""
    model.eval()
    with torch.inference_mode():
        found = [model(*batch.inputs).cpu().numpy() for batch in rows.slices(SCORE_ROWS)]
    return np.concatenate(found) if found else np.zeros(0, np.float32)


def finite_scores(model: WideDeep, rows: Batch, when: str) -> Floats:
    """The same; raises FitError where one is not finite, as huge but finite parameters give."""
    found = scores(model, rows)
    if not np.isfinite(found).all():
        raise FitError(f"{when}: a score is not finite; a lower learning rate may help")
    return found


def _epochs(
    model: WideDeep,
    batches: dict[str, Batch],
    train: TrainConfig,
    shares: tuple[list[float], list[float]],
    valid_units: Ints | None,
    progress: Progress,
    steps: tuple[list[Optimizer], Schedule],
) -> Iterator[Epoch]:
    generator = torch.Generator().manual_seed(train.seed)
    labels = batches["valid"].labels.cpu().numpy()
    for number in range(1, train.epochs + 1):
        started = time.perf_counter()
        rows = batches["train"].with_unknown(*shares, generator)
        rows = rows.take(torch.randperm(rows.rows, generator=generator).to(rows.labels.device))
        loss = _run_epoch(model, rows, steps, train.batch_size, progress)
        seconds = time.perf_counter() - started
        if not math.isfinite(loss) or not all(bool(p.isfinite().all()) for p in model.parameters()):
            raise FitError(f"epoch {number}: the loss or a parameter is not finite; a lower learning rate may help")
        valid = metrics.evaluate(labels, finite_scores(model, batches["valid"], f"epoch {number}"), valid_units)
        progress.watch(number, watched(model, steps[0]))
        yield Epoch(number, loss, rows.rows / seconds, valid)


def _run_epoch(
    model: WideDeep, rows: Batch, steps: tuple[list[Optimizer], Schedule], size: int, progress: Progress
) -> float:
    """One pass; returns the mean loss."""
    model.train()
    optimizers, schedule = steps
    total = torch.zeros((), dtype=torch.float64, device=rows.labels.device)
    for batch in rows.slices(size):
        logits = model.logits(*batch.inputs)
        # Over `size` and not over the batch's rows: a last batch of one row then weighs as one row, not as thousands.
        loss = F.binary_cross_entropy_with_logits(logits, batch.labels, reduction="sum") / size
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
        schedule.step()
        for optimizer in optimizers:
            optimizer.step()
        total += loss.detach()
        progress.batch(batch.rows)
    return float(total) * size / rows.rows


def _units(data: Dataset, rows: Ints) -> Ints | None:
    return None if data.units is None else data.units[rows]


def _record(epoch: Epoch) -> dict[str, Any]:
    return {"loss": epoch.loss, "rows_per_second": round(epoch.rows_per_second), "valid": epoch.valid}
