"""One measurement of bench_training.py, in a process of its own; prints one JSON object.

training_turns.py turns FOLDER ARTIFACTS WIDTH STEPS     a fit whose steps take turns with the floor's
training_turns.py encode FOLDER CACHE                    the encoding of FOLDER's rows, on one core
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from training import train
from training.config import read_config
from training.data import read_dataset
from training.encoding import encode_parts, fit_encoder
from training.progress import Progress

ROWS, WARM = 4096, 10


class Enough(Exception):
    """As many steps as were asked for."""


class Floor:
    """Forward and backward of the same MLP on rows that are there, the gradient of its input too."""

    def __init__(self, width: int) -> None:
        sizes = (width, 256, 128, 64)
        hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
        self._mlp, self._loss = nn.Sequential(*hidden, nn.Linear(64, 1)), nn.BCEWithLogitsLoss()
        self._x, self._y = torch.randn(ROWS, width).requires_grad_(), (torch.rand(ROWS, 1) < 0.5).float()

    def step(self) -> None:
        self._x.grad = None
        self._mlp.zero_grad()
        self._loss(self._mlp(self._x), self._y).backward()


class Turns(Progress):
    """A fit's progress that makes a floor's step after each of the fit's."""

    floor: Floor
    steps: int
    times: list[tuple[float, float, float, float]]  # seconds of the fit's step and of the floor's, then their CPU's

    def start(self, rows: int) -> None:
        super().start(rows)
        self._at = time.perf_counter(), time.process_time()

    def batch(self, rows: int, waiting: float) -> None:
        super().batch(rows, waiting)
        done = time.perf_counter(), time.process_time()
        self.floor.step()
        ended = time.perf_counter(), time.process_time()
        if rows == ROWS:
            own, floor = (np.subtract(done, self._at), np.subtract(ended, done))
            self.times.append((own[0], floor[0], own[1], floor[1]))
        if len(self.times) == self.steps + WARM:
            raise Enough
        self._at = time.perf_counter(), time.process_time()


def turns(folder: Path, artifacts: Path, width: int, steps: int) -> dict[str, Any]:
    """Rows a second of the fit and of the floor, by the mean of their steps and by that of their CPU time."""
    Turns.floor, Turns.steps, Turns.times = Floor(width), steps, []
    train.Progress = Turns  # type: ignore[misc]  # the one way into the loop that is no other loop
    started = time.perf_counter()
    config = read_config(folder / "config.toml")
    cache = artifacts / ".cache"
    with suppress(Enough):
        train.main(config, folder, artifacts, "v1", device="cpu", command="", cache=cache)
    times = np.array(Turns.times[WARM:])
    own, floor, own_cpu, floor_cpu = times.mean(axis=0)
    return {
        "rows_s": round(ROWS / own),
        "floor_rows_s": round(ROWS / floor),
        "ratio": float(floor / own),
        "ratio_of_medians": float(np.median(times[:, 1]) / np.median(times[:, 0])),
        "ratio_of_best": float(np.quantile(times[:, 1], 0.1) / np.quantile(times[:, 0], 0.1)),
        "ratio_of_cpu": float(floor_cpu / own_cpu),
        "steps": len(times),
        "step_ms": round(1000 * float(np.median(times[:, 0])), 2),
        "floor_ms": round(1000 * float(np.median(times[:, 1])), 2),
        "threads": torch.get_num_threads(),
        "seconds": round(time.perf_counter() - started, 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def encode(folder: Path, cache: Path) -> dict[str, Any]:
    """Rows a second of reading Parquet into the cache, of fitting the encoder, and of encoding."""
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    torch.set_num_threads(1)
    config = read_config(folder / "config.toml")
    marks = [(time.perf_counter(), time.process_time())]
    data = read_dataset(folder, config, seed=1, cache=cache)
    marks.append((time.perf_counter(), time.process_time()))
    cuts = data.cut(config)
    parts = cuts.parts(data.positions)
    encoder = fit_encoder(config.schema, data, parts["train"])
    marks.append((time.perf_counter(), time.process_time()))
    encode_parts(data, encoder, config, cuts, parts, cache)
    marks.append((time.perf_counter(), time.process_time()))
    rows, passed = len(data.labels), np.diff(np.array(marks), axis=0)
    names = ("read", "fit", "encode")
    found: dict[str, Any] = {f"{name}_rows_s": round(rows / step[0]) for name, step in zip(names, passed, strict=True)}
    # All of it: what is read, fitted and written, as the first fit of some files waits for it.
    whole, cpu = passed.sum(axis=0)
    return {"rows_s": round(rows / whole), "rows_cpu_s": round(rows / cpu), "rows": rows, **found}


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    kind, first, second, *numbers = sys.argv[1:]
    if kind == "turns":
        print(json.dumps(turns(Path(first), Path(second), *map(int, numbers))))
    else:
        print(json.dumps(encode(Path(first), Path(second))))
