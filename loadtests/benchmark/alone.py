"""The module alone: the published version in one process a core, with no server around it.

    python -m benchmark.alone ARTIFACT BODIES CORE

Reads one command a line from standard input and answers each with one line of JSON:

    join KIND SECONDS      ready halves of a user and the candidates            {"calls", "seconds"}
    rank KIND SECONDS      the same, the candidates' halves gathered from the catalog's
    forward KIND SECONDS   whole rows, encoded
    score KIND SECONDS     all of the model for encoded requests, as the service does it
    expect KIND N          the scores of the first N bodies                   [[…], …]

All but `score` are TorchScript's, whether or not the service has native code in its place.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmark.payloads import read_bodies

SAMPLES = 16


class Alone:
    """One version in this process, on one core and one thread."""

    def __init__(self, artifact: Path, bodies: Path) -> None:
        import torch

        from service.scoring.artifact import open_artifact
        from service.scoring.engine import Engine
        from service.scoring.files import MODULE
        from service.scoring.predictor import Predictor

        torch.set_num_threads(1)
        self.bodies = bodies
        self.serving = served = open_artifact(artifact, device="cpu").predictor
        module = Engine.load(artifact / MODULE, "cpu", lanes=0)
        self.predictor = Predictor(served.version, served.encoder, module, served.catalog, corrected=served.corrected)
        self.calls: dict[tuple[str, str], list[Callable[[], Any]]] = {}

    def measure(self, what: str, kind: str, seconds: float) -> dict[str, float]:
        calls = self.calls.get((what, kind))
        if calls is None:
            calls = self.calls[what, kind] = self.prepare(what, kind)
            _repeat(calls, 1.0)  # the module specialises itself in its first runs
        done, taken = _repeat(calls, seconds)
        return {"calls": done, "seconds": taken}

    def prepare(self, what: str, kind: str) -> list[Callable[[], Any]]:
        engine, predictor = self.predictor.engine, self.predictor
        batches = [predictor.encode([one]) for one in self.requests(kind)[:SAMPLES]]
        if what == "score":
            return [partial(self.serving.score, batch) for batch in batches]
        if what == "forward":
            return [partial(engine.forward, batch.rows()) for batch in batches]
        return [partial(*_ranking(engine, batch, what)) for batch in batches]

    def requests(self, kind: str) -> list[Any]:
        from service.scoring.predictor import RankRequest, RowRequest

        found = [json.loads(body) for body in read_bodies(self.bodies, kind)]
        return [
            RowRequest(one["instances"])
            if "instances" in one
            else RankRequest(one["user"], one["candidates"], one["context"])
            for one in found
        ]

    def expect(self, kind: str, count: int) -> list[list[float]]:
        return [self.predictor.scores_of(one).tolist() for one in self.requests(kind)[:count]]


def _ranking(engine: Any, batch: Any, what: str) -> tuple[Any, ...]:
    """The call of a ranking whose user's half is ready: its function and arguments."""
    user, half, rows = engine.user(batch.users), batch.items.catalog.half, batch.items.rows
    if what == "rank":
        return engine.rank, user, half, rows, batch.index
    return engine.join, user, engine.take(half, rows), batch.index


def _repeat(calls: list[Callable[[], Any]], seconds: float) -> tuple[int, float]:
    """(calls made, seconds taken): in turn until the time is over."""
    started = now = time.perf_counter()
    done = 0
    for call in cycle(calls):
        call()
        done += 1
        now = time.perf_counter()
        if now - started >= seconds:
            break
    return done, now - started


def main(artifact: str, bodies: str, core: str) -> None:
    os.sched_setaffinity(0, {int(core)})
    alone = Alone(Path(artifact), Path(bodies))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        what, kind, number = line.split()
        answer = alone.expect(kind, int(number)) if what == "expect" else alone.measure(what, kind, float(number))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
