"""Several workers on one store: all of them follow, all of them load, and one that cannot stops it."""

import asyncio
import shutil
import time
from dataclasses import replace

import pytest

from service import changes, rollout
from service.batching import Batcher
from service.control import Seat
from tests.service.workplace import break_version, settings, until, worker, workers


def test_a_load_answers_when_every_worker_has_the_version(config):
    async def main():
        async with workers(config, 3) as team:
            answer = await team[1].put("/models/v2")
            assert (answer.status_code, answer.json()) == (200, {"version": "v2", "state": "ready"})
            assert all(one.registry.get("v2") for one in team)

    asyncio.run(main())


def test_a_load_that_is_not_waited_for_is_202_and_comes_to_be(config):
    async def main():
        async with workers(config, 2) as team:
            assert (await team[0].put("/models/v2?wait=false")).status_code == 202

            async def ready():
                return (await team[1].states())["v2"] == "ready"

            await until(ready)

    asyncio.run(main())


def test_a_load_that_is_not_waited_for_and_fails_is_listed_with_its_reason(config, artifacts):
    break_version(artifacts, "v2")

    async def main():
        async with workers(config, 2) as team:
            assert (await team[0].put("/models/v2?wait=false")).status_code == 202

            async def listed():
                model = (await team[1].get("/models/v2")).json()
                return model["state"] == "failed" and "model.pt" in model["error"]

            await until(listed)
            assert (await team[0].predict()).status_code == 200

    asyncio.run(main())


def test_ld02_a_load_that_fails_in_this_worker_changes_nothing(config, artifacts):
    break_version(artifacts, "v2")

    async def main():
        async with workers(config, 2) as team:
            before = team[0].control.document
            answer = await team[0].put("/models/v2")
            assert answer.status_code == 422
            assert "model.pt" in answer.json()["detail"]
            assert team[0].control.document == before
            assert [(await one.predict()).status_code for one in team] == [200, 200]
            assert [(await one.get("/readyz")).status_code for one in team] == [200, 200]

    asyncio.run(main())


def test_a_failed_load_is_listed_with_its_reason(config, artifacts):
    break_version(artifacts, "v2")

    async def main():
        async with worker(config) as one:
            await one.put("/models/v2")

            async def listed():
                model = (await one.get("/models/v2")).json()
                return model["state"] == "failed" and "model.pt" in model["error"]

            await until(listed)

    asyncio.run(main())


def test_a_load_that_fails_in_another_worker_is_undone_everywhere(config, artifacts, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(artifacts, other)
    break_version(other, "v2")

    async def main():
        async with (
            worker(config, Seat("here", "0")) as one,
            worker(settings(other, tmp_path / "state.db"), Seat("there", "0")) as two,
        ):
            answer = await one.put("/models/v2")
            assert answer.status_code == 422
            assert "model.pt" in answer.json()["detail"]
            assert "there" in answer.json()["detail"]

            async def undone():
                return one.registry.get("v2") is None and "v2" not in two.control.document.loaded

            await until(undone)
            assert (await two.predict()).status_code == 200

    asyncio.run(main())


def test_a_mended_version_is_loaded_by_asking_again(config, artifacts, published):
    break_version(artifacts, "v2")

    async def main():
        async with workers(config, 2) as team:
            assert (await team[0].put("/models/v2")).status_code == 422
            shutil.rmtree(artifacts / "v2")
            shutil.copytree(published / "v2", artifacts / "v2")
            assert (await team[0].put("/models/v2")).status_code == 200
            assert all(one.registry.get("v2") for one in team)

    asyncio.run(main())


def test_a_load_at_once_by_every_worker_is_one_load(config):
    async def main():
        async with workers(config, 2) as team:
            answers = await asyncio.gather(*(one.put("/models/v2") for one in team for _ in range(3)))
            assert {answer.status_code for answer in answers} == {200}

    asyncio.run(main())


def test_an_unload_answers_when_no_worker_has_the_version(config):
    async def main():
        async with workers(config, 2) as team:
            await team[0].put("/models/v2")
            answer = await team[1].client.delete("/models/v2")
            assert (answer.status_code, answer.json()["state"]) == (200, "available")
            assert not any(one.registry.get("v2") for one in team)

    asyncio.run(main())


def test_li03_a_version_that_is_unloaded_answers_what_it_took_on(config):
    async def main():
        async with worker(config) as one:
            await one.put("/models/v2")
            batcher: Batcher = one.registry.get("v2").batcher
            running = [asyncio.create_task(ask_for(one, "v2")) for _ in range(20)]
            await asyncio.sleep(0)
            await one.client.delete("/models/v2")
            answers = await asyncio.gather(*running)
            assert {answer.status_code for answer in answers} <= {200, 409}
            assert batcher.queue_rows == 0

    async def ask_for(one, version):
        return await one.client.post("/predict", json={"instances": [{}], "version": version})

    asyncio.run(main())


def test_li03_switches_and_reloads_under_load_fail_nothing(config):
    async def main():
        # Both workers, their loads and the clients share one event loop here: no answer is as quick as a budget wants.
        async with workers(replace(config, budget_ms=60_000.0), 2) as team:
            await team[0].put("/models/v2")
            stop = asyncio.Event()
            asked = [asyncio.create_task(ask(one, stop)) for one in team]
            for turn in range(10):
                version, other = ("v2", "v1") if turn % 2 == 0 else ("v1", "v2")
                assert (await team[0].weights({version: 1}, default=version)).status_code == 200
                if turn % 3 == 0:
                    assert (await team[1].client.delete(f"/models/{other}")).status_code == 200
                    assert (await team[1].put(f"/models/{other}")).status_code == 200
            stop.set()
            assert sum(await asyncio.gather(*asked)) > 20

    async def ask(one, stop):
        count = 0
        while not stop.is_set():
            await asyncio.sleep(0.01)  # the workers' own following shares this loop: it must get its turns
            answer = await one.predict()
            assert answer.status_code == 200, answer.text
            body = answer.json()
            assert body["predictions"][0] == pytest.approx({"v1": 0.1, "v2": 0.9}[body["model_version"]])
            count += 1
        return count

    asyncio.run(main())


def test_an_unload_that_is_overtaken_by_a_load_ends_ready(config):
    async def main():
        async with worker(config) as one:
            await one.put("/models/v2")
            begun = time.monotonic()
            gone, _ = await asyncio.gather(one.client.delete("/models/v2"), one.put("/models/v2"))
            assert gone.status_code in (200, 409)
            assert time.monotonic() - begun < 10

            async def settled():
                wanted = "v2" in one.control.document.loaded
                return (one.registry.get("v2") is not None) == wanted

            await until(settled)

    asyncio.run(main())


def test_a_load_is_a_conflict_where_it_is_taken_back_meanwhile(config):
    async def main():
        async with worker(config) as one:
            ghost = next(iter(await one.control.workers()))
            await one.control.change(lambda change: change.tell(_named(ghost, "ghost")))
            loading = asyncio.create_task(rollout.load(one.control, one.registry, "v2"))

            async def asked():
                return "v2" in one.control.document.loaded

            await until(asked)
            one.control.apply(await one.control.change(lambda change: changes.unload(change, "v2", {"v2"})))
            with pytest.raises(changes.Conflict, match="meanwhile"):
                await loading

    def _named(row, name):
        return type(row)(**{**{f: getattr(row, f) for f in row.__slots__}, "worker": name})

    asyncio.run(main())
