"""`fit`, top to bottom: rows → parts → features → model → epochs → metrics → a published version."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import torch

from service.scoring.device import allowed_cores, limit_memory
from service.scoring.publish import check_publishable
from training import checkpoint
from training.cache import CACHE
from training.checkpoint import MINUTES, Checkpoints
from training.config import Config, ConfigError
from training.distributed import ALONE, Group
from training.encoding import rows_on
from training.judging import judge, publish
from training.loop import Loop, Validation
from training.memory import told_of_memory
from training.model import WideDeep
from training.optimizers import build_optimizers
from training.precision import Precision
from training.preparing import Prepared, prepare
from training.progress import Progress, watching
from training.run import Run
from training.schedule import Schedule
from training.shuffle import BUFFER_BYTES, Rows, Shuffle
from training.stopping import Stopping
from training.warm import warm_start

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
    _begin(config, device, memory, group)
    prepared = prepare(path, config, cache or artifacts / CACHE, group, device=device, strict=strict)
    model = _model(config, prepared)
    with told_of_memory(model, prepared.encoder.layout, config.train, device):
        model.to(device)
        batches = {name: rows_on(device, prepared.encoded[name], prepared.labels(name)) for name in prepared.parts}

    run = _run(config, model, prepared, batches["train"], amp, device, group)
    purpose = checkpoint.purpose(
        config=config.to_dict(), files=dict(prepared.data.files), device=device, amp=amp, of=group.size
    )
    checkpoints = Checkpoints(artifacts, version, purpose, checkpoint_minutes)
    if resume:
        _go_on(run, checkpoints, version, group)
    with (
        watching(artifacts),
        told_of_memory(model, prepared.encoder.layout, config.train, device),
        Progress(artifacts, version, config.train, batches["train"].rows, device=device, show=group.first) as progress,
    ):
        valid = Validation(batches["valid"], prepared.labels("valid"), prepared.units("valid"))
        Loop(run, valid, config.train, progress, checkpoints, stopping or Stopping(), group).epochs()
    _take_best(run)

    plain = judge(model, prepared, batches, group)
    if not group.first:
        return artifacts / version
    folder = publish(artifacts, version, run, prepared, batches, config, plain, command=command, device=device)
    checkpoints.clear()
    return folder


def _begin(config: Config, device: str, memory: float, group: Group) -> None:
    """What holds for the whole process."""
    if config.train.batch_size % group.size:
        raise ConfigError(
            f"[train] batch_size = {config.train.batch_size} must be a multiple of {group.size} processes"
        )
    torch.set_num_threads(min(torch.get_num_threads(), allowed_cores()))  # OMP_NUM_THREADS and containers' limits
    limit_memory(device, memory)
    torch.manual_seed(config.train.seed)  # initial weights and dropout; shuffles have a generator of their own


def _model(config: Config, prepared: Prepared) -> WideDeep:
    """A model that has learned nothing yet, or what an earlier version knew."""
    layout = prepared.encoder.layout
    model = WideDeep(layout, config.model.hidden, config.model.dropout, config.model.norm)
    model.start_at(float(prepared.labels("train").mean()))
    model.correction = math.log(config.train.negatives)
    if config.train.warm_start:
        warm_start(model, prepared.encoder, Path(config.train.warm_start))
    return model


def _run(config: Config, model: WideDeep, prepared: Prepared, rows: Rows, amp: str, device: str, group: Group) -> Run:
    """A run at its start."""
    sizes = (config.train.batch_size, prepared.shares, config.train.seed, BUFFER_BYTES)
    shuffle = Shuffle(rows, *sizes, group=group, ahead=device.startswith("cuda"))
    optimizers = build_optimizers(model, config.train)
    run = Run(model, optimizers, Schedule(optimizers, config.train), shuffle, Precision(amp, device, optimizers))
    if group.rank:
        torch.manual_seed(config.train.seed + group.rank)  # each process drops out units of its own
    return run


def _go_on(run: Run, checkpoints: Checkpoints, version: str, group: Group) -> None:
    """From the newest checkpoint of a run of the same config and data."""
    state = checkpoints.newest()
    if state is None:
        log.info("no checkpoint of %s; training from the start", version)
        return
    run.load_state_dict(state, group.rank)
    log.info("going on in epoch %d, %d rows behind", run.number, run.rows)


def _take_best(run: Run) -> None:
    """The weights of the epoch that is published."""
    best = run.best
    assert best.epoch is not None  # a config has at least one epoch
    run.model.load_state_dict(best.state)
    if best.epoch.valid["auc"] is None:
        log.warning(
            "warning: validation AUC is undefined (%s); the last epoch is published", best.epoch.valid["reason"]
        )
