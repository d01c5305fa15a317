"""Workers and services that die: what was not in flight goes on, what was decided is restored."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.load import Load
from tests.e2e.server import Service, serving


@pytest.fixture
def fresh(tiny_artifacts: Path, tmp_path: Path) -> Iterator[Service]:
    with serving(tiny_artifacts, tmp_path, "--workers", "2", "--load", "all", "--weights", "v1=70,v2=30") as running:
        yield running


def body(number: int) -> dict[str, Any]:
    return {"user": {"user_id": f"u{number % 500}", "age": 30}, "candidates": ["i1", "i2"]}


def test_a_killed_worker_costs_only_its_requests_in_flight_and_is_replaced(fresh: Service) -> None:
    before = {f"u{n}": fresh.predict(body(n)).json()["model_version"] for n in range(100)}
    load = Load(fresh.url, body, clients=8)
    with load.running():
        time.sleep(1)
        victim = fresh.workers()[0]
        killed = time.monotonic()
        victim.kill()
        while len(fresh.workers()) < 2 or fresh.metrics().get("twinrank_workers") != 2:
            assert time.monotonic() - killed < 15, fresh.log
            time.sleep(0.1)
        replaced = time.monotonic() - killed
        time.sleep(1)
    failures = load.failures()
    assert len(failures) <= 8
    assert all(answer.status == 0 and answer.started <= killed + 0.1 for answer in failures), failures
    assert replaced < 15
    print(f"{len(load.answers)} requests, {len(failures)} lost in flight, replaced in {replaced:.1f} s")
    assert {f"u{n}": fresh.predict(body(n)).json()["model_version"] for n in range(100)} == before


def test_me01_me02_counts_outlive_a_worker_and_gauges_do_not(fresh: Service) -> None:
    def total() -> float:
        return sum(value for key, value in fresh.metrics().items() if key.startswith("twinrank_requests_total"))

    for number in range(100):
        fresh.predict(body(number))
    assert [total() for _ in range(10)] == [100.0] * 10
    fresh.workers()[0].kill()
    time.sleep(0.5)
    assert total() == 100.0
    fresh.wait("/readyz", 15)
    for number in range(50):
        fresh.predict(body(number))
    assert [total() for _ in range(10)] == [150.0] * 10
    found = fresh.metrics()
    assert found["twinrank_in_flight"] == 0
    assert found['twinrank_weight{version="v1"}'] == 70
    assert not any("pid=" in key for key in found)


def test_a_restart_restores_weights_and_loaded_versions(fresh: Service) -> None:
    assert fresh.put("/models/weights", {"weights": {"v2": 1}, "comment": "all to v2"}).status_code == 200
    wanted = httpx.get(fresh.url + "/models").json()
    assert fresh.stop() == 0
    fresh.start()
    found = httpx.get(fresh.url + "/models").json()
    for key in ("weights", "epoch", "default", "coverage", "experiment"):
        assert found[key] == wanted[key]
    assert {one["version"]: one["state"] for one in found["models"]} == {"v1": "ready", "v2": "ready", "v3": "ready"}


def test_a_killed_service_restores_what_was_answered_200(fresh: Service) -> None:
    assert fresh.put("/models/weights", {"weights": {"v1": 3, "v2": 1}}).status_code == 200
    fresh.kill()
    fresh.start()
    assert httpx.get(fresh.url + "/models").json()["weights"] == {"v1": 3, "v2": 1}


def test_sigterm_drains_and_exits_0(fresh: Service) -> None:
    load = Load(fresh.url, lambda n: {"instances": [{"age": n}] * 200}, clients=4)
    with load.running():
        ends = time.monotonic() + 20
        while len(load.answers) < 20:  # the clients themselves take their time to start
            assert time.monotonic() < ends
            time.sleep(0.01)
        stopped = time.monotonic()
        assert fresh.stop(signal.SIGTERM) == 0
        load._stop.set()
    begun = [answer for answer in load.answers if answer.started < stopped]
    assert all(answer.status == 200 for answer in begun), [answer for answer in begun if answer.status != 200]
    assert {answer.status for answer in load.answers} <= {200, 503, 0}


def test_workers_go_when_their_supervisor_is_killed(fresh: Service) -> None:
    workers = fresh.workers()
    assert fresh.process is not None
    fresh.process.kill()
    fresh.process.wait(10)
    ends = time.monotonic() + 15
    while any(worker.is_running() for worker in workers):
        assert time.monotonic() < ends
        time.sleep(0.1)
