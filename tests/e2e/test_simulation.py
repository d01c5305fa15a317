"""Simulated users against a real service with two workers: the verdicts where the truth is known."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.server import Service, serving
from tests.tiny import publish_tiny


@pytest.fixture(scope="module", name="running")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """v3, which scores like a model, is the default; `twin` is the same, v1 knows nothing."""
    artifacts = tmp_path_factory.mktemp("artifacts")
    publish_tiny(artifacts, "v1", constant=0.1)
    publish_tiny(artifacts, "v3", seed=3)
    publish_tiny(artifacts, "twin", seed=3)
    options = ("--workers", "2", "--load", "all", "--weights", "v3=1", "--planned-impressions", "20000")
    with serving(artifacts, tmp_path_factory.mktemp("simulated"), *options, "--budget-ms", "5000") as service:
        yield service


def simulate(
    service: Service,
    scenario: str,
    users: int,
    *more: str,
    challenger: str = "v1",
    name: str = "",
    report: bool = True,
) -> tuple[str, dict[str, Any]]:
    """(what was printed, the report)."""
    command = [sys.executable, "-m", "service", "simulate", "--url", service.url, "--scenario", scenario]
    command += ["--users", str(users), "--experiment", name or scenario, "--challenger", challenger, *more]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TWINRANK_")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False, env=clean)
    assert done.returncode == 0, done.stderr
    if not report:
        return done.stdout, {}
    return done.stdout, httpx.get(f"{service.url}/experiments/{name or scenario}", timeout=30).json()


def test_without_a_difference_nothing_is_found(running: Service) -> None:
    printed, report = simulate(running, "aa", 400)
    assert report["verdict"]["state"] in ("collecting", "no_difference")
    assert {one["version"] for one in report["versions"]} == {"v1", "v3"}
    assert sum(one["units"] for one in report["versions"]) == 400
    assert f"verdict: {report['verdict']['state']}" in printed


def test_a_large_lift_is_found(running: Service) -> None:
    _, report = simulate(running, "lift", 1500, "--lift", "1.0")
    assert (report["verdict"]["state"], report["verdict"]["version"]) == ("better", "v1")


def test_a_leak_is_suspected_before_anybody_is_served(running: Service) -> None:
    _, report = simulate(running, "leak", 400)
    assert report["shadow"]["version"] == "v1"
    assert report["shadow"]["leak"]["state"] == "suspected"
    (compared,) = report["shadow"]["compared"]
    assert compared["requests"] > 0
    assert compared["joined"]["auc_gain"] < -0.05
    assert [one["predictions"] for one in report["versions"] if one["version"] == "v1"] in ([], [0])


def test_its_clean_twin_is_not(running: Service) -> None:
    _, report = simulate(running, "leak", 400, challenger="twin", name="clean")
    assert (report["shadow"]["version"], report["shadow"]["leak"]["reasons"]) == ("twin", [])


def test_a_service_that_is_not_there_is_one_plain_line() -> None:
    command = [sys.executable, "-m", "service", "simulate", "--url", "http://127.0.0.1:9"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)


def test_a_plan_is_part_of_the_report(running: Service) -> None:
    running.put("/models/weights", {"weights": {"v3": 1, "v1": 1}, "experiment": "planned", "shadow": None})
    plan = {"version": "v1", "steps": [{"coverage": 0.5, "seconds": 60}]}
    assert running.put("/experiments/planned/plan", plan).status_code == 200
    report = httpx.get(f"{running.url}/experiments/planned", timeout=30).json()
    assert (report["plan"]["state"], report["plan"]["version"]) == ("running", "v1")


def series(service: Service, scenario: str, runs: int, users: int, *more: str) -> dict[str, int]:
    """In how many of many experiments each verdict ever came, as the command prints it."""
    printed, _ = simulate(service, scenario, users, "--runs", str(runs), *more, name=f"{scenario}-many", report=False)
    print(printed)
    return {what: int(hits) for what, hits in re.findall(r"^  (.+): (\d+) of \d+ ", printed, re.MULTILINE)}


@pytest.mark.slow
def test_hardly_one_of_20_experiments_without_a_difference_is_ever_judged(running: Service) -> None:
    found = series(running, "aa", 20, 500)
    assert found["ever better"] + found["ever worse"] <= 3  # of 5 % each, more than 3 of 20 come once in 60 times
    assert (found["ever broken"], found["split ever a mismatch"]) == (0, 0)


@pytest.mark.slow
def test_lost_users_are_told_as_a_broken_split(running: Service) -> None:
    """A split of 52/48 by 15,000 users; the formula's own rates are 90 % and 76 %."""
    found = series(running, "srm", 10, 15_000, "--visits", "1")
    assert found["split ever in doubt (warning or mismatch)"] >= 7
    assert found["split ever a mismatch"] == found["ever broken"] >= 4


@pytest.mark.slow
def test_most_large_lifts_are_found(running: Service) -> None:
    found = series(running, "lift", 10, 1_000, "--lift", "0.6")
    assert (found["ever better"] >= 8, found["ever worse"]) == (True, 0)
