"""The module alone on several cores at once, asked from outside (alone.py does the work)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmark.servers import LOADTESTS, ServerError, stop
from benchmark.work import ROOT


class Modules:
    """One process a core, each with the version; silent until asked."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes = processes
        self._answers()  # each says that it is ready

    def per_second(self, what: str, kind: str, seconds: float) -> float:
        """Calls a second of all of them together: `join`, `rank`, `score` or `forward` over the bodies of a kind."""
        return sum(float(one["calls"] / one["seconds"]) for one in self._ask(f"{what} {kind} {seconds}"))

    def expect(self, kind: str, count: int = 2) -> list[list[float]]:
        """The scores of the first bodies of a kind."""
        return list(self._ask(f"expect {kind} {count}")[0])

    def _ask(self, line: str) -> list[Any]:
        for process in self._processes:
            assert process.stdin is not None  # it is a pipe
            process.stdin.write(line + "\n")
            process.stdin.flush()
        return self._answers()

    def _answers(self) -> list[Any]:
        lines = [process.stdout.readline() for process in self._processes if process.stdout]
        if not all(lines):
            raise ServerError("the module alone ended; its reason stands above")
        return [json.loads(line) for line in lines]


@contextmanager
def modules(artifact: Path, bodies: Path, cores: int) -> Iterator[Modules]:
    path = os.pathsep.join([str(LOADTESTS), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmark.alone", str(artifact), str(bodies)]
    started: list[subprocess.Popen[str]] = []
    try:
        for core in sorted(os.sched_getaffinity(0))[:cores]:
            started.append(
                subprocess.Popen(
                    [*command, str(core)],
                    cwd=ROOT,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        yield Modules(started)
    finally:
        for process in started:
            stop(process)
