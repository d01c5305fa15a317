"""Checks on a GPU what the gate can only check on the CPU, then times it. One script, generated data, minutes.

    python loadtests/gpu_check.py serving            (--device cpu tries the script itself where there is no GPU)

`serving`: two versions trained on the device pass their exams there, score there as on the CPU, together as alone, by
`evaluate`, by ranking and over HTTP; then the times of one forward and of one request, and what the device holds.
Uses the Python and torch that it is run with. Prints one JSON object; exits with 1 where a check failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from generated import ITEMS, generate, ranking, rows

from service.scoring.artifact import Artifact, open_artifact
from service.scoring.predictor import RankRequest, RowRequest

ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = 1e-5  # as an exam's
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

    def __init__(self, folder: Path, device: str, rows: int) -> None:
        self.data, self.artifacts, self.device, self.rows = folder / "data", folder / "artifacts", device, rows
        self.here: dict[str, Artifact] = {}
        self.cpu: dict[str, Artifact] = {}

    def checks(self) -> list[Callable[[], Any]]:
        scoring = [self.parity, self.ranking_equals_rows, self.together_as_alone]
        return [self.fit, self.exam, *scoring, self.evaluate, self.http]

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

    def http(self) -> Json | str:
        """The service on the device answers both versions as the predictor does."""
        absent = [name for name in ("fastapi", "uvicorn", "sqlalchemy") if not importlib.util.find_spec(name)]
        if absent:
            return f"not run: no {', '.join(absent)} here"
        options = ["--artifacts", str(self.artifacts), "--state", f"sqlite:///{self.data / 'state.db'}", "--port", "0"]
        command = [sys.executable, "-m", "service", "serve", *options, "--load", "all", "--weights", "a=1,b=1"]
        log = self.data / "service.log"
        with log.open("w") as output:
            service = subprocess.Popen([*command, "--device", self.device], cwd=ROOT, stdout=output, stderr=output)
        try:
            url = _until(lambda: _listening(log), 60)
            _until(lambda: _answers(f"{url}/readyz"), 120)
            request = ranking(100)
            body = {"user": request.user, "context": request.context, "candidates": request.candidates}
            answers = {version: _post(f"{url}/predict", {**body, "version": version}) for version in self.here}
        finally:
            service.terminate()
            code = service.wait(timeout=60)
        assert code == 0, f"the service ended with {code}"
        return {name: near(answer["predictions"], score(self.here[name], request)) for name, answer in answers.items()}

    def times(self) -> Json:
        """Milliseconds, p50 and p99: a whole request (encode and forward) and its forward alone."""
        report: Json = {}
        for name, opened in {"cpu": self.cpu["b"], self.device: self.here["b"]}.items():
            requests = {"row 1": rows(1), "ranking 100": ranking(100), "ranking 500": ranking(500)}
            for label, request in requests.items():
                prepared = opened.predictor.encode([request])
                report[f"{name}, {label}"] = {
                    "request": _milliseconds(partial(score, opened, request)),
                    "forward": _milliseconds(partial(opened.predictor.score, prepared)),
                }
            batch = opened.predictor.encode([ranking(512, user) for user in range(8)])
            report[f"{name}, forward of 4096 rows"] = _milliseconds(partial(opened.predictor.score, batch))
        if self.device == "cuda":
            report["device MiB"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
        return report


def _milliseconds(work: Callable[[], Any], seconds: float = 2.0) -> dict[str, float]:
    for _ in range(20):
        work()
    taken: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        started = time.perf_counter()
        work()
        taken.append((time.perf_counter() - started) * 1000)
    p50, p99 = np.percentile(taken, [50, 99])
    return {"p50": round(float(p50), 3), "p99": round(float(p99), 3), "calls": len(taken)}


def _until(ask: Callable[[], Any], seconds: float) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if answer := ask():
            return answer
        time.sleep(0.2)
    raise AssertionError(f"nothing after {seconds:.0f} s")


def _listening(log: Path) -> str | None:
    for line in log.read_text(encoding="utf-8").splitlines():
        if '"listening"' in line:
            return str(json.loads(line)["url"])
    return None


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _post(url: str, body: Json) -> Json:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return dict(json.load(response))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=["serving"])
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
        serving = Serving(Path(folder), options.device, options.rows)
        steps = serving.checks() if options.no_times else [*serving.checks(), serving.times]
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
