"""The work that training is timed on: 26 columns × 16 over ids in equal tables, 13 numerics, made in memory.

It runs training's own loop, without the reading, the reports and the export around it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from service.scoring.encoded import Encoded, Floats
from service.scoring.layout import IdColumn, Layout, NumericColumn
from training.batches import Batch
from training.checkpoint import Checkpoints
from training.config import TrainConfig
from training.encoding import MappedRows
from training.loop import Loop, Validation
from training.model import WideDeep
from training.optimizers import build_optimizers
from training.precision import Precision
from training.progress import Progress
from training.run import Run
from training.schedule import Schedule
from training.shuffle import BUFFER_BYTES, Shuffle
from training.stopping import Stopping

COLUMNS, NUMERICS, DIM, HIDDEN = 26, 13, 16, (256, 128, 64)
VALID_ROWS = 100_000
Json = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """Rows to train on and rows to judge by, both encoded, with their labels."""

    layout: Layout
    train: Encoded
    labels: Floats
    valid: Encoded
    valid_labels: Floats

    @property
    def floor_bytes(self) -> int:
        """Bytes that a row must move at least: its inputs; five passes over its vectors (looked up, their gradient
        written and read, the rows written back and their sums), seven over its wide weights (z and n too), and six over
        its activations. Layers' weights serve a whole batch."""
        vectors, wide = COLUMNS * DIM * 4, COLUMNS * 4
        widths = (NUMERICS + COLUMNS * DIM, *HIDDEN)
        return COLUMNS * 8 + NUMERICS * 4 + 5 * vectors + 7 * wide + 6 * 4 * sum(widths)


def made(rows: int, ids: int) -> Work:
    """`rows` training rows over `ids` ids in all; every id has an effect of its own on the label."""
    draw = np.random.default_rng(1)
    each = max(3, ids // COLUMNS)
    columns = tuple(IdColumn(f"c{n}", f"c{n}", "user", each, DIM, True, True, False) for n in range(COLUMNS))
    layout = Layout(tuple(NumericColumn(f"i{n}", "user", True) for n in range(NUMERICS)), columns, (), ())
    effects = draw.normal(0, 0.35, (COLUMNS, each)).astype(np.float32)
    valid_rows = min(VALID_ROWS, rows)
    total = rows + valid_rows
    # Few ids are frequent and most are rare, as in a log of clicks.
    found = (draw.random((total, COLUMNS), np.float32) ** 3 * (each - 2)).astype(np.int32) + 2
    numerics = draw.random((total, NUMERICS), np.float32)
    logits = numerics[:, 0] - 1.5
    for n in range(COLUMNS):
        logits += effects[n][found[:, n]]
    labels = (draw.random(total) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    parts = [Encoded(numerics[a:b], found[a:b], ()) for a, b in ((0, rows), (rows, total))]
    return Work(layout, parts[0], labels[:rows], parts[1], labels[rows:])


def trained(work: Work, folder: Path, device: str, amp: str, batch_size: int, epochs: int) -> Json:
    """What training came to: rows/s, ms a step, AUC and seconds of training behind it after each epoch, peak memory."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(1)
    train = TrainConfig(batch_size=batch_size, epochs=epochs, patience=epochs)
    model = WideDeep(work.layout, HIDDEN, 0.0)
    model.start_at(float(work.labels.mean()))
    model.to(device)
    optimizers = build_optimizers(model, train)
    shuffle = Shuffle(
        MappedRows(work.train, work.labels, device),
        batch_size,
        ([0.0] * COLUMNS, []),
        1,
        BUFFER_BYTES,
        ahead=device == "cuda",
    )
    schedule = Schedule(optimizers, train)
    run = Run(model, optimizers, schedule, shuffle, Precision(amp, device, optimizers))
    valid = Validation(Batch.of(work.valid, work.valid_labels, device), work.valid_labels, None)
    with Progress(folder, "v", train, len(work.labels), device=device, show=False) as progress:
        checkpoints = Checkpoints(folder, "v", "timed", minutes=1e9)
        Loop(run, valid, train, progress, checkpoints, Stopping()).epochs()
    seconds = np.cumsum([len(work.labels) / epoch.rows_per_second for epoch in run.history])
    last = run.history[1:] or run.history  # the first one warms up
    rate = float(np.median([epoch.rows_per_second for epoch in last]))
    found: Json = {"rows/s": round(rate), "step ms": round(batch_size / rate * 1000, 2)}
    found["waiting"] = round(float(np.median([epoch.waiting for epoch in last])), 3)
    found["auc"] = [round(epoch.valid["auc"], 5) for epoch in run.history]
    found["seconds"] = [round(float(second), 2) for second in seconds]
    if device == "cuda":
        found["peak MiB"] = round(torch.cuda.max_memory_allocated() / 2**20)
    return found


def bandwidth(device: str) -> float:
    """Bytes a second that the device's memory moves: a long copy, read and write counted."""
    source = torch.zeros((1 << 28) if device == "cuda" else (1 << 25), device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(6):
        started = time.perf_counter()
        target.copy_(source)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return 2 * source.nbytes / min(times)
