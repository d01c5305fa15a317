"""Checks on a GPU what the gate can only check on the CPU, then times it. One script, generated data, minutes.

    python loadtests/gpu_check.py serving            (--device cpu tries the script itself where there is no GPU)
    python loadtests/gpu_check.py training

`serving`: two versions trained on the device pass their exams there, score there as on the CPU, together as alone, by
`evaluate`, by ranking and over HTTP, in every precision within its bound, and leave nothing behind when swapped; then
rows a second and milliseconds of rankings, in this process and over HTTP, beside the bare module row by row.
`training`: one config on the CPU and in every precision of the device: AUC, first gradients, buffers made ahead, a
checkpoint, a full GPU; then rows a second, peak memory and seconds to one AUC, beside the floor of memory's bandwidth.
Uses the Python and torch that it is run with. Prints one JSON object; exits with 1 where a check failed.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from generated import ITEMS, generate, ranking, rows
from gpu_service import ask, served
from gpu_times import in_process, over_http
from gpu_training import Training

from service.scoring.artifact import Artifact, open_artifact
from service.scoring.device import FLOAT32, PRECISIONS
from service.scoring.predictor import RankRequest, RowRequest
from service.scoring.prepared import attach, prepare

ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = 1e-5  # as an exam's
SWAPS = 200
Json = dict[str, Any]


def program(*arguments: str) -> str:
    """The output of one command of the two programs; a failure shows what it printed."""
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(arguments)}: exit {done.returncode}: {done.stderr[-1500:]}")
    return done.stdout


def score(artifact: Artifact, request: RankRequest | RowRequest) -> np.ndarray:
    return artifact.predictor.scores_of(request)


def near(left: Any, right: Any, tolerance: float = TOLERANCE) -> float:
    """The largest difference; AssertionError where it is more than the tolerance or nothing was compared."""
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    assert left.shape == right.shape != (0,), (left.shape, right.shape)
    worst = float(np.abs(left - right).max())
    assert worst <= tolerance, f"off by {worst:.2e}, more than {tolerance:.0e}"
    return worst


class Serving:
    """The checks and times of serving; each method is one line of the report."""

    def __init__(self, folder: Path, device: str, rows: int, *, timed: bool) -> None:
        self.data, self.artifacts, self.device, self.rows = folder / "data", folder / "artifacts", device, rows
        self.timed = timed
        self.here: dict[str, Artifact] = {}
        self.cpu: dict[str, Artifact] = {}

    def checks(self) -> list[Callable[[], Any]]:
        scoring = [self.parity, self.ranking_equals_rows, self.together_as_alone]
        return [self.fit, self.exam, *scoring, self.precisions, self.swaps, self.evaluate, self.http]

    def fit(self) -> Json:
        """Both versions train on the device and are published, which takes the exam."""
        self.data.mkdir()
        generate(self.data, self.rows)
        seconds = {}
        for version in ("a", "b"):
            started = time.perf_counter()
            where = ["--data", str(self.data), "--artifacts", str(self.artifacts), "--version", version]
            program("training", "fit", "--config", str(self.data / f"{version}.toml"), *where, "--device", self.device)
            seconds[version] = round(time.perf_counter() - started, 1)
        return {"rows": self.rows, "seconds": seconds}

    def exam(self) -> Json:
        """Each version opens, which is to pass its exam, on the device and on the CPU."""
        seconds = {}
        for version in ("a", "b"):
            started = time.perf_counter()
            self.here[version] = open_artifact(self.artifacts / version, device=self.device)
            seconds[version] = round(time.perf_counter() - started, 2)
            self.cpu[version] = open_artifact(self.artifacts / version, device="cpu")
            assert self.here[version].engine.device.type == self.device
        return {"seconds": seconds}

    def parity(self) -> Json:
        """Scores on the device are the CPU's."""
        requests = [rows(1), rows(1000), ranking(1), ranking(500), RowRequest([{}])]
        return {
            version: max(near(score(here, request), score(self.cpu[version], request)) for request in requests)
            for version, here in self.here.items()
        }

    def ranking_equals_rows(self) -> float:
        """A candidate scores in a ranking as its row does."""
        request = ranking(200)
        table = pq.read_table(self.data / "items.parquet").to_pylist()
        candidates = [table[n] if n < ITEMS else {"item_id": n} for n in request.candidates]
        plain = [{**request.user, **request.context, **candidate} for candidate in candidates]
        return max(near(score(one, request), score(one, RowRequest(plain)), 1e-6) for one in self.here.values())

    def together_as_alone(self) -> Json:
        """Both versions at once from several threads give what each gives alone, on one device."""
        requests = [ranking(100, user) for user in range(40)]
        jobs = [(version, request) for request in requests for version in self.here]
        alone = [score(self.here[version], request) for version, request in jobs]
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda job: score(self.here[job[0]], job[1]), jobs))
        assert not np.allclose(alone[0], alone[1], atol=1e-4), "the two versions score alike: nothing was checked"
        return {"jobs": len(jobs), "worst": max(near(a, b, 1e-6) for a, b in zip(alone, together, strict=True))}

    def evaluate(self) -> Json:
        """`evaluate` on the device finds the metrics that it finds on the CPU."""
        found = {}
        for device in ("cpu", self.device):
            where = ["--artifact", str(self.artifacts / "b"), "--data", str(self.data), "--device", device]
            found[device] = json.loads(program("training", "evaluate", *where).splitlines()[-1])
        worst = max(abs(found["cpu"][name] - found[self.device][name]) for name in ("auc", "logloss"))
        assert worst <= 1e-4, found
        return {"auc": found[self.device]["auc"], "worst": worst}

    def precisions(self) -> Json:
        """The worst error against the exam of each precision, on this device."""
        found = {}
        for precision in PRECISIONS:
            opened = open_artifact(
                self.artifacts / "b", device=self.device, precision=precision, precision_tolerance=1e-2
            )
            found[precision] = opened.engine.precision_error
        self.here["b"].engine.use(FLOAT32)  # TF32 is a switch of the whole process
        return found

    def swaps(self) -> Json:
        """SWAPS versions attached, asked and dropped one after the other leave nothing behind."""
        for version in self.here:
            (self.data / f"prepared-{version}").mkdir()
            prepare(self.artifacts / version, self.data / f"prepared-{version}")
        request, held = ranking(100), []
        wanted = {version: score(one, request) for version, one in self.here.items()}
        for n in range(SWAPS):
            version = "ab"[n % 2]
            predictor = attach(self.data / f"prepared-{version}", device=self.device)
            near(predictor.scores_of(request), wanted[version])
            del predictor
            if n % 10 == 9:
                gc.collect()
                held.append(_held(self.device))
        # Allocators reach their size in the first swaps.
        host, device = (max(one[2:4]) for one in zip(*held, strict=True))
        grown = {"host MiB": held[-1][0] - host, "device MiB": held[-1][1] - device}
        assert grown["host MiB"] <= 40, grown
        assert grown["device MiB"] <= 1, grown
        return {"swaps": SWAPS, **{name: round(value, 1) for name, value in grown.items()}}

    def http(self) -> Json | str:
        """The service on the device answers both versions as the predictor does; then its times."""
        absent = [name for name in ("fastapi", "uvicorn", "sqlalchemy") if not importlib.util.find_spec(name)]
        if absent:
            return f"not run: no {', '.join(absent)} here"
        request = ranking(100)
        body = {"user": request.user, "context": request.context, "candidates": request.candidates}
        with served(self.artifacts, self.data, self.device) as url:
            answers = {version: ask(f"{url}/predict", {**body, "version": version}) for version in self.here}
            report: Json = {
                name: near(answer["predictions"], score(self.here[name], request)) for name, answer in answers.items()
            }
            if self.timed:
                report |= {f"{callers} callers": over_http(url, callers) for callers in (1, 8)}
        return report

    def times(self) -> Json:
        """Rows a second and milliseconds in this process, on the device and on the CPU."""
        opened = {"cpu": self.cpu["b"], self.device: self.here["b"]}
        report: Json = {name: in_process(one, self.artifacts / "b" / "model.pt") for name, one in opened.items()}
        if self.device == "cuda":
            report["device MiB"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
        return report


def _held(device: str) -> tuple[float, float]:
    """MiB that this process holds of the host's memory and of the device's."""
    host = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(host.split()[1]) / 1024, torch.cuda.memory_allocated() / 2**20 if device == "cuda" else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=["serving", "training"])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--rows", type=int, default=400_000, help="generated training rows")
    parser.add_argument("--no-times", action="store_true", help="the checks alone")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("gpu_check: torch finds no usable CUDA device", file=sys.stderr)
        return 1
    name = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or platform.machine()
    report: Json = {"part": options.part, "device": name}
    report |= {"torch": torch.__version__, "python": platform.python_version()}
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        kind = Serving if options.part == "serving" else Training
        part = kind(Path(folder), options.device, options.rows, timed=not options.no_times)
        steps = part.checks() if options.no_times else [*part.checks(), part.times]
        for step in steps:
            started = time.perf_counter()
            try:
                report[step.__name__] = step()
            except Exception as error:  # noqa: BLE001  # what broke is the step's result; the next may tell more
                report[step.__name__] = {"failed": f"{type(error).__name__}: {error}"[:2000]}
                failed.append(step.__name__)
                traceback.print_exc()
            print(f"{step.__name__}: {time.perf_counter() - started:.1f} s", file=sys.stderr)
    print(json.dumps({**report, "failed": failed}, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
