"""What a ranking costs on the device, beside the same candidates as whole rows through the bare TorchScript module."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from generated import ITEMS, ranking
from gpu_service import hammer

from service.scoring.artifact import Artifact
from service.scoring.encoded import Encoded, Floats
from service.scoring.predictor import RankRequest

CANDIDATES = (1, 100, 500, 4096)
SECONDS = 1.5  # of each figure
Json = dict[str, Any]


class RowWise:
    """The module as it is published, its rows copied to the device one array at a time: what most services do."""

    def __init__(self, path: Path, device: str) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*torch.jit.*", category=DeprecationWarning)
            self._module = torch.jit.freeze(torch.jit.load(path, map_location=device).eval())
        self._device = device

    def __call__(self, rows: Encoded) -> Floats:
        def put(arrays: list[Any]) -> list[torch.Tensor]:
            return [torch.from_numpy(one).to(self._device) for one in arrays]

        with torch.inference_mode():
            numerics, ids = put([rows.numerics, rows.ids])
            values, offsets = put([bag.values for bag in rows.bags]), put([bag.offsets for bag in rows.bags])
            scores: Floats = self._module(numerics, ids, values, offsets).cpu().numpy()
            return scores


def in_process(opened: Artifact, module: Path) -> Json:
    """By number of candidates: a ranking with its encoding, alone, and of items that the catalog knows alone.

    Beside them the module on whole rows, encoded before. The catalog lacks 2 % of the candidates of the first two.
    """
    row_wise, report = RowWise(module, opened.predictor.device), {}
    for count in CANDIDATES:
        request = ranking(count)
        batch = opened.predictor.encode([request])
        rows = batch.rows()
        known = RankRequest(request.user, [int(one) % ITEMS for one in request.candidates], request.context)
        report[str(count)] = {
            "request": _figures(partial(opened.predictor.scores_of, request), count),
            "rank": _figures(partial(opened.predictor.score, batch), count),
            "rank of the catalog": _figures(partial(opened.predictor.score, opened.predictor.encode([known])), count),
            "torch.jit row-wise": _figures(partial(row_wise, rows), count),
        }
    return report


def over_http(url: str, callers: int) -> Json:
    """By number of candidates, as `callers` at a time get them."""
    report = {}
    for count in CANDIDATES:
        asked = [ranking(count, user) for user in range(16)]
        bodies = [
            json.dumps({"user": one.user, "context": one.context, "candidates": one.candidates}).encode()
            for one in asked
        ]
        hammer(url, bodies, callers, 0.3)
        taken, refused = hammer(url, bodies, callers, SECONDS)
        report[str(count)] = {**_summary(taken, count, SECONDS), "refused": refused}
    return report


def _figures(work: Callable[[], Any], rows: int) -> Json:
    for _ in range(20):
        work()
    taken: list[float] = []
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        started = time.perf_counter()
        work()
        taken.append((time.perf_counter() - started) * 1000)
    return _summary(taken, rows, sum(taken) / 1000)


def _summary(milliseconds: list[float], rows: int, seconds: float) -> Json:
    p50, p99 = np.percentile(milliseconds, [50, 99])
    rate = round(len(milliseconds) * rows / seconds)
    return {"rows/s": rate, "p50 ms": round(float(p50), 3), "p99 ms": round(float(p99), 3), "calls": len(milliseconds)}
