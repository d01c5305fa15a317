"""A service of two workers whose state is in PostgreSQL, which is a server of its own and can go away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.server import Service, serving
from tests.e2e.test_feedback import event, predicted, send_anew
from tests.postgresql import Cluster

OPTIONS = ("--workers", "2", "--load", "all", "--weights", "v1=50,v2=50")


@pytest.fixture(scope="module", name="running")
def _running(tiny_artifacts: Path, tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("postgresql")
    with serving(tiny_artifacts, folder, *OPTIONS, "--state", cluster.state()) as service:
        yield service


def impressions(service: Service) -> int:
    report = httpx.get(service.url + "/experiments/default", timeout=30).json()
    return sum(one["impressions"] for one in report["versions"])


def test_both_workers_count_each_event_once(running: Service) -> None:
    before = impressions(running)
    events = [event(prediction, item) for prediction, _ in predicted(running, range(20)) for item in range(10)]
    total = sum((send_anew(running, events) for _ in range(4)), start=send_anew(running, []))
    assert (total["accepted"], total["duplicate"]) == (200, 600)
    assert impressions(running) - before == 200


def test_a_change_reaches_both_workers_in_two_seconds(running: Service) -> None:
    answer = running.put("/models/weights", {"weights": {"v2": 1}, "experiment": "next"})
    assert answer.status_code == 200
    epoch = answer.json()["epoch"]
    time.sleep(2)
    given = [running.predict({"user": {"age": 30}, "candidates": ["i1"], "unit_id": n}).json() for n in range(30)]
    assert {(one["model_version"], one["assignment"]["epoch"]) for one in given} == {("v2", epoch)}
    assert running.put("/models/weights", {"weights": {"v1": 1, "v2": 1}, "experiment": "default"}).status_code == 200


def test_predictions_go_on_without_the_database_and_feedback_is_taken_again_once_it_is_back(
    running: Service, cluster: Cluster
) -> None:
    ((before, _),) = predicted(running, ["early"])
    cluster.stop()
    try:
        killed = running.workers()[0]
        killed.kill()
        time.sleep(0.5)
        begun = time.monotonic()
        given = [prediction for prediction, _ in predicted(running, range(50))]
        assert time.monotonic() - begun < 10
        refused = httpx.post(running.url + "/feedback", json={"events": [event(before, 1)]}, timeout=30)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert running.put("/models/weights", {"weights": {"v1": 1}}).status_code == 503
        assert httpx.get(running.url + "/readyz", timeout=5).status_code == 200
    finally:
        cluster.start()
    ends = time.monotonic() + 15
    while True:
        again = httpx.post(running.url + "/feedback", json={"events": [event(before, 1)]}, timeout=30)
        if again.status_code == 202:
            break
        assert time.monotonic() < ends, running.log
        time.sleep(0.1)
    assert again.json()["accepted"] == 1
    # What was answered meanwhile is counted now, predictions and their events.
    assert send_anew(running, [event(prediction, 1) for prediction in given])["accepted"] == 50
    ends = time.monotonic() + 40
    while killed.pid in (pids := {one.pid for one in running.workers()}) or len(pids) != 2 or not alive(running, pids):
        assert time.monotonic() < ends, running.log
        time.sleep(0.2)


def alive(service: Service, pids: set[int]) -> bool:
    """Whether each of these workers has answered that it is ready; they take turns with connections."""
    answers = [httpx.get(service.url + "/readyz", timeout=5).status_code for _ in range(8)]
    return set(answers) == {200} and service.metrics()["twinrank_workers"] == len(pids)


def test_predictions_go_on_while_the_database_hangs(running: Service, cluster: Cluster) -> None:
    ((before, _),) = predicted(running, ["hung"])
    with cluster.frozen():
        begun = time.monotonic()
        assert len(predicted(running, range(100))) == 100
        time.sleep(2)
        assert len(predicted(running, range(100))) == 100
        assert time.monotonic() - begun < 12
        assert httpx.get(running.url + "/livez", timeout=5).status_code == 200
    assert send_anew(running, [event(before, 1)])["accepted"] == 1


def test_the_state_is_found_again_after_a_restart(tiny_artifacts: Path, tmp_path: Path, cluster: Cluster) -> None:
    state = cluster.state()
    with serving(tiny_artifacts, tmp_path, *OPTIONS, "--state", state) as service:
        assert service.put("/models/weights", {"weights": {"v1": 1, "v2": 3}}).status_code == 200
        ((prediction, _),) = predicted(service, ["u1"])
        assert service.stop() == 0
    with serving(tiny_artifacts, tmp_path, *OPTIONS, "--state", state) as service:
        assert httpx.get(service.url + "/models", timeout=10).json()["weights"] == {"v1": 1, "v2": 3}
        assert send_anew(service, [event(prediction, 1)])["accepted"] == 1


def test_two_replicas_follow_one_state(
    running: Service, tiny_artifacts: Path, tmp_path: Path, cluster: Cluster
) -> None:
    state = running.options[running.options.index("--state") + 1]
    with serving(tiny_artifacts, tmp_path, *OPTIONS, "--state", state) as other:
        events = [event(prediction, 5) for prediction, _ in predicted(running, range(200, 230))]
        assert send_anew(other, events)["accepted"] == 30
        assert send_anew(running, events)["duplicate"] == 30
        assert other.put("/models/weights", {"weights": {"v1": 1, "v2": 9}}).status_code == 200
        document = httpx.get(running.url + "/models", timeout=10).json()
        assert document["weights"] == {"v1": 1, "v2": 9}
        assert len(document["replicas"]) == 2
