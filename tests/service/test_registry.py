"""The versions of one worker: loaded one at a time, drained before they go."""

import asyncio
import shutil
import threading

import pytest

from service.opening import Alone
from service.registry import LoadError, Registry
from service.scoring.predictor import RowRequest
from tests.service.workplace import settings


class Numbers:
    """What the registry tells, written down."""

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        return lambda *values: self.told.append((name, *values[:2]))


def run(artifacts, tmp_path, check):
    async def main():
        numbers = Numbers()
        async with Registry(settings(artifacts, tmp_path / "state.db"), numbers) as registry:
            await check(registry, numbers)

    asyncio.run(main())


def test_a_loaded_version_scores_through_its_queue(artifacts, tmp_path):
    async def check(registry, numbers):
        loaded = await registry.load("v2")
        answer = await loaded.batcher.submit(RowRequest([{"age": 30}, {}]))
        assert answer.value.scores.tolist() == pytest.approx([0.9, 0.9])
        assert registry.get("v2") is loaded
        assert registry.states() == {"v2": ("ready", None)}
        assert ("batch", "v2", 2) in numbers.told

    run(artifacts, tmp_path, check)


def test_a_load_again_gives_the_same(artifacts, tmp_path):
    async def check(registry, numbers):
        first, second = await asyncio.gather(registry.load("v1"), registry.load("v1"))
        assert first is second

    run(artifacts, tmp_path, check)


def test_loads_are_one_at_a_time(artifacts, tmp_path, monkeypatch):
    running, most = 0, 0
    lock = threading.Lock()
    original = Alone.version

    def counted(self, *what, **how):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        try:
            return original(self, *what, **how)
        finally:
            with lock:
                running -= 1

    monkeypatch.setattr(Alone, "version", counted)

    async def check(registry, numbers):
        await asyncio.gather(*(registry.load(version) for version in ("v1", "v2", "v3")))

    run(artifacts, tmp_path, check)
    assert most == 1


def test_ld02_a_failed_load_says_why_and_leaves_the_others(artifacts, tmp_path):
    (artifacts / "v2" / "model.pt").unlink()

    async def check(registry, numbers):
        await registry.load("v1")
        with pytest.raises(LoadError, match=r"model\.pt"):
            await registry.load("v2")
        assert registry.get("v1") is not None
        state, error = registry.states()["v2"]
        assert state == "failed"
        assert "model.pt" in error
        registry.forget("v2")
        assert "v2" not in registry.states()

    run(artifacts, tmp_path, check)


def test_a_version_that_does_not_exist_fails_to_load(artifacts, tmp_path):
    async def check(registry, numbers):
        with pytest.raises(LoadError, match=r"manifest\.json"):
            await registry.load("v9")

    run(artifacts, tmp_path, check)


def test_an_unloaded_version_takes_nothing_new_and_is_told_of(artifacts, tmp_path):
    async def check(registry, numbers):
        loaded = await registry.load("v2")
        running = asyncio.create_task(loaded.batcher.submit(RowRequest([{}])))
        await asyncio.sleep(0)
        leaving = asyncio.create_task(registry.unload("v2"))
        await asyncio.sleep(0)
        assert registry.get("v2") is None
        assert (await running).value.scores.tolist() == pytest.approx([0.9])
        await leaving
        assert registry.states() == {}
        assert ("version_unloaded", "v2") in numbers.told

    run(artifacts, tmp_path, check)


def test_a_load_waits_for_the_end_of_an_unload(artifacts, tmp_path):
    async def check(registry, numbers):
        first = await registry.load("v2")
        _, second = await asyncio.gather(registry.unload("v2"), registry.load("v2"))
        assert second is not first
        assert registry.states() == {"v2": ("ready", None)}

    run(artifacts, tmp_path, check)


def test_names_of_versions_published_later_become_known(artifacts, tmp_path, published):
    for version in ("v1", "v2", "v3"):
        shutil.rmtree(artifacts / version)

    async def check(registry, numbers):
        assert not registry.known.side("price")
        shutil.copytree(published / "v1", artifacts / "v1")
        await registry.refresh_known()
        assert registry.known.side("price") == {"item"}

    run(artifacts, tmp_path, check)
