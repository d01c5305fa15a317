"""`fit`, top to bottom: rows → parts → features → model → epochs → metrics → a published version."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from service.scoring.device import allowed_cores, limit_memory
from service.scoring.encoded import Ints
from service.scoring.files import CARD, REPORT
from service.scoring.publish import check_publishable
from training import calibration, checkpoint, export, metrics
from training.cache import CACHE
from training.checkpoint import MINUTES, Checkpoints
from training.config import Config, ConfigError
from training.data import Dataset, check_classes, read_dataset
from training.distributed import ALONE, Group
from training.encoding import encode_parts, fit_encoder, rows_on
from training.leakage.report import look_for_leaks
from training.loop import Loop, Validation, finite_scores, scores
from training.memory import told_of_memory
from training.model import WideDeep
from training.negatives import kept_rows
from training.optimizers import build_optimizers
from training.precision import Precision
from training.progress import Progress
from training.report.card import card
from training.report.evidence import Evidence
from training.report.importance import importances
from training.report.page import page
from training.run import Epoch, Run
from training.schedule import Schedule
from training.shuffle import BUFFER_BYTES, Rows, Shuffle
from training.slices import slices
from training.stopping import Stopping
from training.unknowns import unknown_shares
from training.warm import warm_start
from training.watched import wide_weights

log = logging.getLogger("training")


def main(
    config: Config,
    path: Path,
    artifacts: Path,
    version: str,
    *,
    device: str,
    command: str,
    strict: bool = False,
    amp: str = "off",
    resume: bool = False,
    checkpoint_minutes: float = MINUTES,
    cache: Path | None = None,
    memory: float = 1.0,
    stopping: Stopping | None = None,
    group: Group = ALONE,
) -> Path:
    """Train on PATH and publish `version` under `artifacts`; returns its folder.

    Raises DataFault, LeakFault (`strict` alone), FitError, ArtifactError: nothing visible is left then. Terminated
    where `stopping` hears of it, with a checkpoint if training had begun; `resume` goes on from the newest one.
    Encoded rows are kept in `cache` (<artifacts>/.cache where None); of a GPU, a share `memory` may be held.
    """
    check_publishable(artifacts, version)
    if config.train.batch_size % group.size:
        raise ConfigError(
            f"[train] batch_size = {config.train.batch_size} must be a multiple of {group.size} processes"
        )
    torch.set_num_threads(min(torch.get_num_threads(), allowed_cores()))  # OMP_NUM_THREADS and containers' limits
    limit_memory(device, memory)
    torch.manual_seed(config.train.seed)  # initial weights and dropout; shuffles have a generator of their own

    # ---- rows and parts: nothing below is fitted on a row that is not in parts["train"]
    cache = cache or artifacts / CACHE
    data = group.one_by_one(lambda: read_dataset(path, config, seed=config.train.seed, cache=cache))
    cuts = data.cut(config)
    parts = cuts.parts(data.positions)
    check_classes(data.labels[parts["train"]], config.data.label)
    catalog = data.catalog(config, parts["train"])
    parts["train"] = kept_rows(parts["train"], data.labels, config.train.negatives, config.train.seed)
    log.info("%d rows: %s; device %s", len(data.labels), ", ".join(f"{len(v)} {k}" for k, v in parts.items()), device)

    # ---- features: the encoder that serving will use, fitted here
    encoder = fit_encoder(config.schema, data, parts["train"])
    encoded = group.one_by_one(lambda: encode_parts(data, encoder, config, cuts, parts, cache))
    notes = [*data.notes, *export.flat_columns(encoder.layout, encoded["train"])]
    for note in notes:
        log.warning("warning: %s", note)
    if group.first:
        leakage = look_for_leaks(data, cuts.parts(data.positions), config)  # with the negatives that are not trained on
        leakage.tell(strict=strict)
    ordered = data.times[parts["train"]] if data.times is not None and config.split.kind != "random" else None
    shares = unknown_shares(encoder.layout, encoded["train"], ordered, len(parts["valid"]) / len(parts["train"]))

    # ---- model
    model = WideDeep(encoder.layout, config.model.hidden, config.model.dropout, config.model.norm)
    model.start_at(float(data.labels[parts["train"]].mean()))
    model.correction = math.log(config.train.negatives)
    if config.train.warm_start:
        warm_start(model, encoder, Path(config.train.warm_start))

    # ---- epochs, from the start or from where a run of the same config and data was stopped
    with told_of_memory(model, encoder.layout, config.train, device):
        model.to(device)
        batches = {name: rows_on(device, encoded[name], data.labels[rows]) for name, rows in parts.items()}
    sizes = (config.train.batch_size, shares, config.train.seed, BUFFER_BYTES)
    shuffle = Shuffle(batches["train"], *sizes, group=group, ahead=device.startswith("cuda"))
    optimizers = build_optimizers(model, config.train)
    schedule = Schedule(optimizers, config.train)
    run = Run(model, optimizers, schedule, shuffle, Precision(amp, device, optimizers))
    purpose = checkpoint.purpose(config=config.to_dict(), files=dict(data.files), device=device, amp=amp, of=group.size)
    checkpoints = Checkpoints(artifacts, version, purpose, checkpoint_minutes)
    if group.rank:
        torch.manual_seed(config.train.seed + group.rank)  # each process drops out units of its own
    if resume and (state := checkpoints.newest()) is not None:
        run.load_state_dict(state, group.rank)
        log.info("going on in epoch %d, %d rows behind", run.number, run.rows)
    elif resume:
        log.info("no checkpoint of %s; training from the start", version)
    with (
        told_of_memory(model, encoder.layout, config.train, device),
        Progress(artifacts, version, config.train, batches["train"].rows, device=device, show=group.first) as progress,
    ):
        valid = Validation(batches["valid"], data.labels[parts["valid"]], _units(data, parts["valid"]))
        Loop(run, valid, config.train, progress, checkpoints, stopping or Stopping(), group).epochs()
    best = run.best
    assert best.epoch is not None  # a config has at least one epoch
    model.load_state_dict(best.state)
    if best.epoch.valid["auc"] is None:
        log.warning(
            "warning: validation AUC is undefined (%s); the last epoch is published", best.epoch.valid["reason"]
        )

    # ---- metrics of the epoch that is published, and the version itself
    plain = _metrics(model, data, parts, batches, group)
    if not group.first:
        return artifacts / version
    later = None if ordered is None or data.times is None else data.times[parts["valid"]]
    correction = calibration.correct(
        model, config.train.calibration, batches["valid"], data.labels[parts["valid"]], later
    )
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
        "values": export.values(encoder, encoded[judged]),
        "wide": wide_weights(model),
        "unknown_shares": dict(
            zip([c.name for c in (*encoder.layout.ids, *encoder.layout.bags)], [*shares[0], *shares[1]], strict=True)
        ),
        "best_epoch": best.epoch.number,
        "epochs": [_record(epoch) for epoch in run.history],
    }
    evidence = Evidence(version, manifest, judged, labels, shown, before, worth)
    pages = {REPORT: page(evidence), CARD: card(evidence)}
    folder = export.publish_version(artifacts, version, model, encoder, data, parts, config, catalog, manifest, pages)
    checkpoints.clear()
    return folder


def _metrics(
    model: WideDeep, data: Dataset, parts: Mapping[str, Ints], batches: Mapping[str, Rows], group: Group = ALONE
) -> dict[str, dict[str, Any]]:
    """Of each part but the training part."""
    return {
        name: metrics.evaluate(data.labels[rows], finite_scores(model, batches[name], name, group), _units(data, rows))
        for name, rows in parts.items()
        if name != "train"
    }


def _units(data: Dataset, rows: Ints) -> Ints | None:
    return None if data.units is None else data.units[rows]


def _record(epoch: Epoch) -> dict[str, Any]:
    shown = {"loss": epoch.loss, "rows_per_second": round(epoch.rows_per_second), "waiting": round(epoch.waiting, 4)}
    return {**shown, "valid": epoch.valid}
