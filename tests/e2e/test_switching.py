"""Switching weights and loading versions under load: nothing fails, nothing is mixed, every count is right."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.load import Load
from tests.e2e.server import Service, serving

SCORES = {"v1": 0.1, "v2": 0.9}


@pytest.fixture
def fresh(tiny_artifacts: Path, tmp_path: Path) -> Iterator[Service]:
    with serving(tiny_artifacts, tmp_path, "--workers", "2", "--load", "all", "--weights", "v1=1,v2=1") as running:
        yield running


def body(number: int) -> dict[str, Any]:
    if number % 3:
        return {
            "user": {"user_id": f"u{number}", "age": number % 70},
            "candidates": ["i1", "i2", "new"] * (number % 9 + 1),
        }
    return {"instances": [{"user_id": f"u{number}", "age": 3, "genres": ["a", "zz"]}] * (number % 5 + 1)}


def rows_of(number: int) -> int:
    asked = body(number)
    return len(asked.get("candidates") or asked["instances"])


def weights(service: Service, **values: float) -> dict[str, Any]:
    response = service.put("/models/weights", {"weights": values})
    assert response.status_code == 200, response.text
    return dict(response.json())


def switch_for(service: Service, seconds: float, switches: int, reloads: int) -> None:
    """Spread the switches and the load/unload cycles of v3 evenly over the time."""
    started, events = time.monotonic(), switches + reloads
    for event in range(events):
        if event * reloads // events != (event + 1) * reloads // events:
            assert service.put("/models/v3").status_code == 200
            assert httpx.delete(service.url + "/models/v3", timeout=60).status_code in (200, 204)
        else:
            split = [{"v1": 1.0}, {"v2": 1.0}, {"v1": 60.0, "v2": 40.0}][event % 3]
            weights(service, **split)
        time.sleep(max(0.0, started + (event + 1) * seconds / events - time.monotonic()))


def check_consistent(load: Load) -> None:
    assert load.failures() == []
    for answer in load.answers:
        version = answer.body["model_version"]
        assert answer.body["predictions"] == pytest.approx([SCORES[version]] * rows_of(answer.number), abs=1e-6)


def check_metrics(service: Service, load: Load) -> None:
    found = service.metrics()
    answered = Counter(answer.body["model_version"] for answer in load.answers)
    rows = Counter[str]()
    reasons = Counter[tuple[str, str]]()
    for answer in load.answers:
        rows[answer.body["model_version"]] += rows_of(answer.number)
        reasons[answer.body["model_version"], answer.body["assignment"]["reason"]] += 1
    for version in SCORES:
        assert found[f'twinrank_requests_total{{code="200",version="{version}"}}'] == answered[version]
        assert found[f'twinrank_request_seconds_count{{version="{version}"}}'] == answered[version]
        assert found[f'twinrank_rows_total{{version="{version}"}}'] == rows[version]
        assert found[f'twinrank_score_count{{version="{version}"}}'] == rows[version]
    for (version, reason), count in reasons.items():
        assert found[f'twinrank_assignments_total{{reason="{reason}",version="{version}"}}'] == count
    assert found["twinrank_in_flight"] == 0
    assert found["twinrank_workers"] == 2


def switch_under_load(service: Service, seconds: float, switches: int, reloads: int) -> Load:
    assert httpx.delete(service.url + "/models/v3", timeout=60).status_code in (200, 204)
    load = Load(service.url, body)
    with load.running():
        switch_for(service, seconds, switches, reloads)
    check_consistent(load)
    check_metrics(service, load)
    return load


def test_li03_switches_and_reloads_under_load_fail_nothing(fresh: Service) -> None:
    switch_under_load(fresh, seconds=5, switches=10, reloads=2)


@pytest.mark.slow
def test_a_minute_of_load_with_fifty_switches_and_ten_reloads_fails_nothing(fresh: Service) -> None:
    load = switch_under_load(fresh, seconds=60, switches=50, reloads=10)
    print(f"{len(load.answers)} requests, {load.codes()}")


def test_ab04_after_the_answer_to_a_switch_every_reply_follows_it(tiny_artifacts: Path, tmp_path: Path) -> None:
    options = ("--workers", "4", "--load", "all", "--weights", "v1=1", "--budget-ms", "10000")
    with serving(tiny_artifacts, tmp_path, *options) as service:
        assert service.put("/models/v2").status_code == 200  # only what has weight is waited for at the start
        check_switched(service, "v2")
        service.workers()[1].kill()
        time.sleep(0.2)
        check_switched(service, "v1")
        wait_for_workers(service, 4)
        check_switched(service, "v2")


def check_switched(service: Service, version: str) -> None:
    epoch = weights(service, **{version: 1.0})["epoch"]

    def ask(number: int) -> tuple[str, int, int]:
        answer = service.predict(body(number)).json()
        listed = httpx.get(service.url + "/models", timeout=10).json() if number % 4 == 0 else {"epoch": epoch}
        return answer["model_version"], answer["assignment"]["epoch"], listed["epoch"]

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(ask, range(80))) == {(version, epoch, epoch)}


def wait_for_workers(service: Service, count: int) -> None:
    ends = time.monotonic() + 30
    while service.metrics().get("twinrank_workers") != count:
        assert time.monotonic() < ends, service.log
        time.sleep(0.1)


def test_ab04_switches_at_once_have_one_order(fresh: Service) -> None:
    def switch(number: int) -> int:
        return int(weights(fresh, v1=1.0, v2=float(number))["epoch"])

    with ThreadPoolExecutor(8) as pool:
        epochs = list(pool.map(switch, range(2, 18)))
    assert sorted(epochs) == list(range(2, 18))
    document = httpx.get(fresh.url + "/models").json()
    assert document["epoch"] == 17
    assert document["weights"]["v2"] == float(2 + epochs.index(17))


def test_weight_zero_gets_nothing(fresh: Service) -> None:
    weights(fresh, v1=1.0, v2=0.0)
    assert {fresh.predict(body(number)).json()["model_version"] for number in range(100)} == {"v1"}


def test_if_match_and_dry_runs_and_rollback(fresh: Service) -> None:
    url = fresh.url + "/models/weights"
    dry = httpx.put(url, params={"dry_run": "true"}, json={"weights": {"v1": 60, "v2": 40}}).json()
    assert dry["moved_fraction"] == pytest.approx(0.1, abs=1e-9)
    assert httpx.get(fresh.url + "/models").json()["epoch"] == 1
    stale = httpx.put(url, json={"weights": {"v1": 1}}, headers={"If-Match": '"9"'})
    assert stale.status_code == 412
    assert weights(fresh, v1=60, v2=40)["epoch"] == 2
    assert weights(fresh, v1=60, v2=40)["epoch"] == 2
    back = httpx.post(url + "/rollback")
    assert back.status_code == 200
    assert back.json()["weights"] == {"v1": 1.0, "v2": 1.0}
    assert back.json()["epoch"] == 3
    assert len(httpx.get(url + "/history").json()["history"]) >= 3


def test_a_failed_load_leaves_everything_as_it_was(tiny_artifacts: Path, tmp_path: Path) -> None:
    import shutil

    root = tmp_path / "artifacts"
    shutil.copytree(tiny_artifacts, root)
    with serving(root, tmp_path / "state", "--workers", "2", "--load", "newest", "--weights", "v1=1") as service:
        module = root / "v2" / "model.pt"
        module.write_bytes(module.read_bytes()[:-200])
        refused = service.put("/models/v2")
        assert refused.status_code == 422
        assert "model.pt" in refused.text
        assert service.predict(body(1)).json()["model_version"] == "v1"
        assert httpx.get(service.url + "/readyz").status_code == 200
        states = {one["version"]: one["state"] for one in httpx.get(service.url + "/models").json()["models"]}
        assert states["v1"] == "ready"
        assert states["v2"] in ("failed", "available")
