"""Memory of the whole service: what comes with a version goes with it."""

from __future__ import annotations

import http.client
import json
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.server import Service, serving
from tests.training.tiny_data import config, fit, write_data


def held(service: Service) -> int:
    """Proportional set size of all processes, bytes: what is shared counts once."""
    assert service.process is not None
    return sum(one.memory_full_info().pss for one in [psutil.Process(service.process.pid), *service.workers()])


@pytest.mark.slow
def test_fifty_swaps_leave_what_five_did(tiny_artifacts: Path, tmp_path: Path) -> None:
    with serving(tiny_artifacts, tmp_path, "--workers", "2", "--load", "none", "--weights", "v1=1") as service:
        after = []
        for number in range(50):
            assert service.put("/models/v3").status_code == 200
            body = {"user": {"user_id": f"u{number}"}, "candidates": ["i1", "i2"], "version": "v3"}
            assert service.predict(body).status_code == 200
            assert httpx.delete(service.url + "/models/v3", timeout=60).status_code in (200, 204)
            after.append(held(service))
        assert after[-1] <= 1.1 * after[4]
        print([size >> 20 for size in after[4::9]])


@pytest.mark.slow
def test_op04_memory_and_threads_stay_as_they_are_under_batches_of_every_size(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    for version in ("v1", "v2"):
        fit(config(), data, tmp_path / "artifacts", version)
    options = ("--workers", "1", "--load", "all", "--weights", "v1=50,v2=50", "--budget-ms", "10000")
    with serving(tmp_path / "artifacts", tmp_path, *options) as service, ExitStack() as stack:
        (worker,) = service.workers()
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
        stack.callback(connection.close)
        early, threads = 0, 0
        for number in range(20_000):
            if number % 2_000 == 1_000:
                assert service.put("/models/weights", {"weights": {"v1": 1 + number % 3, "v2": 1}}).status_code == 200
            candidates = [f"i{n % 30}" for n in range(1 + number % 500)]
            body = json.dumps({"user": {"user_id": number % 40, "age": 30}, "candidates": candidates})
            connection.request("POST", "/predict", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            scores = json.loads(answer.read())["predictions"]
            assert (answer.status, len(scores)) == (200, len(candidates))
            if number == 5_000:
                early, threads = worker.memory_info().rss, worker.num_threads()
        assert worker.memory_info().rss <= 1.1 * early
        assert worker.num_threads() <= threads
