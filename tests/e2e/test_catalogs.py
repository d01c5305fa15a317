"""Catalog revisions in a real service: switched under load, each answer of one alone; kept over kills."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from service.scoring.artifact import open_artifact
from service.scoring.predictor import RankRequest
from tests.e2e.load import Load
from tests.e2e.server import Service, serving
from tests.tiny import ITEMS, add_revision

ASKED = [*(item["item_id"] for item in ITEMS), "new"]
USER = {"user_id": "u1", "age": 33}


@pytest.fixture(scope="module", name="service")
def _service(tiny_artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """v3 in two workers, with a revision in which every item has the price of another, and there is one item more."""
    root = tmp_path_factory.mktemp("catalogs")
    version = Path(shutil.copytree(tiny_artifacts / "v3", root / "artifacts" / "v3"))
    items = [{**item, "price": 19.0 - item["price"]} for item in ITEMS]
    add_revision(version, [*items, {**items[0], "item_id": "new"}])
    with serving(root / "artifacts", root / "state", "--workers", "2") as running:
        yield running


@pytest.fixture(scope="module", name="scores")
def _scores(service: Service) -> list[list[float]]:
    """What each item of ASKED scores by revision 0 and by revision 1."""
    opened = [open_artifact(service.artifacts / "v3", revision=number).predictor for number in (0, 1)]
    return [one.scores_of(RankRequest(USER, ASKED)).tolist() for one in opened]


def body(_: int = 0) -> dict[str, Any]:
    return {"user": USER, "candidates": ASKED}


def switch(service: Service, revision: int) -> None:
    answer = service.put("/models/v3/catalog", {"revision": revision})
    assert answer.status_code == 200, answer.text
    assert answer.json()["catalog"]["revision"] == revision


def revision_of(answer: dict[str, Any], scores: list[list[float]]) -> int:
    """The revision that all of an answer is of."""
    found = [n for n in (0, 1) if np.allclose(answer["predictions"], scores[n], rtol=0, atol=1e-6)]
    assert len(found) == 1, answer
    assert answer["unknown_items"] == 1 - found[0]
    return found[0]


def asked(service: Service, scores: list[list[float]], times: int = 20) -> set[int]:
    """The revisions that answer, each request over a connection of its own."""
    return {revision_of(service.predict(body()).json(), scores) for _ in range(times)}


def test_switches_under_load_fail_nothing_and_mix_nothing(service: Service, scores: list[list[float]]) -> None:
    switches = 4
    switch(service, 0)
    load = Load(service.url, body, clients=4)
    with load.running():
        for number in range(switches):
            switch(service, (number + 1) % 2)
            assert asked(service, scores, 4) == {(number + 1) % 2}
            time.sleep(0.05)
    assert load.failures() == []
    seen = Counter(revision_of(answer.body, scores) for answer in load.answers)
    assert min(seen[0], seen[1]) > 0
    print(f"{len(load.answers)} requests, {switches} switches: {dict(seen)}")


def test_the_revision_outlives_a_killed_worker_and_a_restart(service: Service, scores: list[list[float]]) -> None:
    switch(service, 1)
    service.workers()[0].kill()
    time.sleep(0.2)
    ends = time.monotonic() + 30
    while service.metrics().get("twinrank_workers") != 2:
        assert time.monotonic() < ends, service.log
        time.sleep(0.1)
    assert asked(service, scores) == {1}
    assert service.stop() == 0
    service.start()
    assert asked(service, scores) == {1}
    assert httpx.get(service.url + "/models/v3").json()["catalog"]["revision"] == 1


def test_a_damaged_revision_leaves_every_worker_with_the_one_it_has(
    service: Service, scores: list[list[float]]
) -> None:
    version = service.artifacts / "v3"
    add_revision(version, [{"item_id": "i0", "price": 1.0}])
    switch(service, 1)
    (version / "catalogs" / "2.parquet").write_bytes(b"PAR1")
    refused = service.put("/models/v3/catalog", {"revision": 2})
    assert refused.status_code == 422
    assert "catalogs/2.parquet" in refused.text
    assert asked(service, scores) == {1}
    assert httpx.get(service.url + "/readyz").status_code == 200


@pytest.mark.slow
def test_two_hundred_switches_under_load_mix_nothing_and_hold_no_old_catalog(
    service: Service, scores: list[list[float]]
) -> None:
    load = Load(service.url, body, clients=4)
    memory = []
    with load.running():
        for number in range(200):
            switch(service, (number + 1) % 2)
            if number in (20, 199):
                memory.append(sum(one.memory_info().rss for one in service.workers()))
    assert load.failures() == []
    assert {revision_of(answer.body, scores) for answer in load.answers} == {0, 1}
    print(f"{len(load.answers)} requests; resident {memory[0] / 2**20:.0f} and {memory[1] / 2**20:.0f} MiB")
    assert memory[1] < 1.1 * memory[0]
