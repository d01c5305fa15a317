"""Liveness, readiness and metrics of a worker."""

import asyncio
import json
import threading
import time

import pytest

from tests.service.workplace import settings, worker


def run(artifacts, tmp_path, check, *, ready=True, **more):
    async def main():
        async with worker(settings(artifacts, tmp_path / "state.db", **more), ready=ready) as one:
            await check(one)

    asyncio.run(main())


async def reason(one):
    answer = await one.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    return answer.json()["reason"]


def test_a_worker_with_its_versions_is_ready(artifacts, tmp_path):
    async def check(one):
        answer = await one.get("/readyz")
        assert (answer.status_code, answer.json()) == (200, {"status": "ready"})

    run(artifacts, tmp_path, check)


def test_li01_with_no_version_it_lives_and_is_not_ready(tmp_path):
    (tmp_path / "none").mkdir()

    async def check(one):
        assert (await one.get("/livez")).status_code == 200
        assert await reason(one) == "no version has weight"
        assert (await one.predict()).status_code == 503

    run(tmp_path / "none", tmp_path, check, ready=False)


def test_li01_a_corrupt_version_with_weight_keeps_it_unready_and_says_why(artifacts, tmp_path):
    (artifacts / "v2" / "model.pt").write_bytes(b"no module")

    async def check(one):
        ends = time.monotonic() + 10
        while "failed" not in await reason(one):
            assert time.monotonic() < ends
            await asyncio.sleep(0.05)
        assert "model.pt" in await reason(one)
        assert (await one.get("/livez")).status_code == 200

    run(artifacts, tmp_path, check, ready=False, load="all", weights={"v1": 9.0, "v2": 1.0})


def test_li01_a_corrupt_version_without_weight_does_not_matter(artifacts, tmp_path):
    (artifacts / "v3" / "model.pt").write_bytes(b"no module")

    async def check(one):
        assert (await one.get("/readyz")).status_code == 200

    run(artifacts, tmp_path, check, load="all", weights={"v1": 1.0})


def test_draining_is_unready_and_alive(artifacts, tmp_path):
    async def check(one):
        one.control.draining = True
        assert await reason(one) == "draining"
        assert (await one.get("/livez")).status_code == 200
        assert (await one.predict()).status_code == 503

    run(artifacts, tmp_path, check)


class Wedged:
    """An engine that works on until it is let go."""

    has_halves = False

    def __init__(self, engine):
        self.engine, self.released = engine, threading.Event()

    def forward(self, encoded):
        self.released.wait(20)
        return self.engine.forward(encoded)


def test_li04_a_version_that_works_beyond_every_deadline_makes_the_worker_unready(artifacts, tmp_path):
    async def check(one):
        predictor = one.registry.get("v2").predictor
        predictor.engine = Wedged(predictor.engine)
        assert (await one.predict()).status_code == 504
        assert (await one.get("/readyz")).status_code == 200
        await asyncio.sleep(1.0)
        assert "has worked on one batch" in await reason(one)
        assert [(await one.get(path)).status_code for path in ("/livez", "/metrics")] == [200, 200]
        predictor.engine.released.set()
        await asyncio.sleep(0.3)
        assert (await one.get("/readyz")).status_code == 200

    run(artifacts, tmp_path, check, timeout_ms=200.0)


def test_metrics_tell_the_stored_weights_and_what_is_ready(artifacts, tmp_path):
    async def check(one):
        await one.weights({"v1": 30, "v2": 70})
        lines = (await one.get("/metrics")).text.splitlines()
        assert {
            'twinrank_weight{version="v1"} 30.0',
            'twinrank_weight{version="v2"} 70.0',
            "twinrank_epoch 2.0",
            'twinrank_model_ready{version="v1"} 1.0',
            'twinrank_assignments_total{reason="split",version="v2"} 0.0',
        } <= set(lines)

    run(artifacts, tmp_path, check, load="all", weights={"v1": 1.0})


@pytest.mark.parametrize(("load", "loaded"), [("newest", {"v2"}), ("all", {"v1", "v2", "v3"}), ("none", set())])
def test_an_empty_state_loads_what_the_option_says(artifacts, tmp_path, load, loaded):
    async def check(one):
        assert set(one.control.document.loaded) == loaded
        assert one.control.document.weights == ({} if load == "none" else {"v2": 1})

    run(artifacts, tmp_path, check, load=load, ready=load != "none")


def test_the_newest_is_by_the_manifest_and_not_by_name_or_clock(artifacts, tmp_path):
    manifest = json.loads((artifacts / "v1" / "manifest.json").read_text())
    manifest["created"] = "2026-02-28T23:30:00-05:00"  # later than v2's by its zone
    (artifacts / "v1" / "manifest.json").write_text(json.dumps(manifest))

    async def check(one):
        assert one.control.document.default == "v1"

    run(artifacts, tmp_path, check)


def test_a_stored_state_is_not_asked_again_what_to_start_with(artifacts, tmp_path):
    async def first(one):
        await one.weights({"v2": 5})

    async def second(one):
        assert one.control.document.weights == {"v2": 5}

    run(artifacts, tmp_path, first)
    run(artifacts, tmp_path, second, load="all", weights={"v1": 1.0, "gone": 1.0})
