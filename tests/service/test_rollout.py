"""Several workers on one store: all of them follow, all of them load, and one that cannot stops it."""

import asyncio
import shutil
import time

import pytest

from service import changes, rollout
from service.batcher import Batcher
from service.control import Seat
from service.state import StateStore
from tests.service.workplace import settings, worker, workers


def run(main):
    return asyncio.run(main)


async def until(condition, seconds=5.0):
    """Poll an async condition."""
    ends = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < ends, "it never came to be"
        await asyncio.sleep(0.02)


def break_version(artifacts, version):
    (artifacts / version / "model.pt").write_bytes(b"")


@pytest.fixture(name="config")
def _config(artifacts, tmp_path):
    return settings(artifacts, tmp_path / "state.db", weights={"v1": 1.0}, load="none")


def test_ab04_after_the_answer_every_worker_follows_the_switch(config):
    async def main():
        async with workers(config, 3) as team:
            await team[0].put("/models/v2")
            for turn in range(6):
                version = ("v2", "v1")[turn % 2]
                assert (await team[turn % 3].weights({version: 1})).status_code == 200
                for one in team:
                    assert one.control.document.weights == {version: 1}
                    answer = (await one.predict()).json()
                    assert answer["model_version"] == version
                    assert answer["predictions"][0] == pytest.approx({"v1": 0.1, "v2": 0.9}[version])

    run(main())


def test_a_switch_is_seen_by_the_listing_of_every_worker(config):
    async def main():
        async with workers(config, 2) as team:
            await team[0].weights({"v1": 7})
            listed = [(await one.get("/models")).json() for one in team]
        assert listed[0] == listed[1]
        assert listed[0]["weights"] == {"v1": 7}
        assert [replica["epoch"] for replica in listed[0]["replicas"]] == [listed[0]["epoch"]]

    run(main())


def test_a_load_answers_when_every_worker_has_the_version(config):
    async def main():
        async with workers(config, 3) as team:
            answer = await team[1].put("/models/v2")
            assert (answer.status_code, answer.json()) == (200, {"version": "v2", "state": "ready"})
            assert all(one.registry.get("v2") for one in team)

    run(main())


def test_a_load_that_is_not_waited_for_is_202_and_comes_to_be(config):
    async def main():
        async with workers(config, 2) as team:
            assert (await team[0].put("/models/v2?wait=false")).status_code == 202

            async def ready():
                return (await team[1].states())["v2"] == "ready"

            await until(ready)

    run(main())


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

    run(main())


def test_a_failed_load_is_listed_with_its_reason(config, artifacts):
    break_version(artifacts, "v2")

    async def main():
        async with worker(config) as one:
            await one.put("/models/v2")

            async def listed():
                model = (await one.get("/models/v2")).json()
                return model["state"] == "failed" and "model.pt" in model["error"]

            await until(listed)

    run(main())


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

    run(main())


def test_a_mended_version_is_loaded_by_asking_again(config, artifacts, published):
    break_version(artifacts, "v2")

    async def main():
        async with workers(config, 2) as team:
            assert (await team[0].put("/models/v2")).status_code == 422
            shutil.rmtree(artifacts / "v2")
            shutil.copytree(published / "v2", artifacts / "v2")
            assert (await team[0].put("/models/v2")).status_code == 200
            assert all(one.registry.get("v2") for one in team)

    run(main())


def test_a_load_at_once_by_every_worker_is_one_load(config):
    async def main():
        async with workers(config, 2) as team:
            answers = await asyncio.gather(*(one.put("/models/v2") for one in team for _ in range(3)))
            assert {answer.status_code for answer in answers} == {200}

    run(main())


def test_an_unload_answers_when_no_worker_has_the_version(config):
    async def main():
        async with workers(config, 2) as team:
            await team[0].put("/models/v2")
            answer = await team[1].client.delete("/models/v2")
            assert (answer.status_code, answer.json()["state"]) == (200, "available")
            assert not any(one.registry.get("v2") for one in team)

    run(main())


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

    run(main())


def test_li03_switches_and_reloads_under_load_fail_nothing(config):
    async def main():
        async with workers(config, 2) as team:
            await team[0].put("/models/v2")
            stop = asyncio.Event()
            asked = [asyncio.create_task(ask(one, stop)) for one in team for _ in range(3)]
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
            answer = await one.predict()
            assert answer.status_code == 200, answer.text
            body = answer.json()
            assert body["predictions"][0] == pytest.approx({"v1": 0.1, "v2": 0.9}[body["model_version"]])
            count += 1
        return count

    run(main())


def test_a_worker_that_starts_later_has_the_stored_split_and_versions(config):
    async def main():
        async with worker(config, Seat("here", "0", replacement=True)) as one:
            await one.put("/models/v2")
            await one.put("/models/v3")
            await one.weights({"v2": 1})
            async with worker(config, Seat("here", "1", replacement=True)) as two:
                assert two.control.document == one.control.document
                assert all(two.registry.get(version) for version in ("v1", "v2", "v3"))
                assert (await two.predict()).json()["model_version"] == "v2"

    run(main())


def test_a_restart_restores_a_version_at_weight_0(config):
    async def main():
        async with worker(config) as one:
            await one.put("/models/v3")
        async with worker(config) as one:

            async def restored():
                return one.registry.get("v3") is not None

            await until(restored)

    run(main())


def test_a_replacement_is_not_let_in_before_it_is_ready(config, artifacts):
    async def main():
        async with worker(config, Seat("here", "0", replacement=True)) as one:
            async with worker(config, Seat("here", "1", replacement=True)) as two:
                assert two.control.unready() is None
            assert [row.worker for row in await one.control.workers()] == ["0"]

    run(main())


def test_a_replacement_that_cannot_load_waits_while_a_sibling_answers(config, artifacts):
    async def main():
        async with worker(config, Seat("here", "0", replacement=True)):
            break_version(artifacts, "v1")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(come_and_go(), 1.0)

    async def come_and_go():
        async with worker(config, Seat("here", "1", replacement=True)):
            pass

    run(main())


def test_a_replacement_without_a_sibling_comes_to_say_why(config, artifacts):
    break_version(artifacts, "v1")

    async def main():
        async with worker(config, Seat("here", "1", replacement=True), ready=False) as alone:
            answer = await alone.get("/readyz")
            assert answer.status_code == 503
            assert "model.pt" in answer.json()["reason"]

    run(main())


def test_a_change_waits_no_longer_than_two_seconds_for_a_worker_that_is_gone(config):
    async def main():
        async with worker(config) as one:
            [row] = await one.control.workers()
            ghost = type(row)(**{**{f: getattr(row, f) for f in row.__slots__}, "worker": "ghost"})
            await one.control.change(lambda change: change.tell(ghost))
            begun = time.monotonic()
            assert (await one.weights({"v1": 3})).status_code == 200
            return time.monotonic() - begun

    assert 1.5 < run(main()) < 3.5


def test_a_worker_keeps_its_split_while_the_store_is_away(config, tmp_path, caplog):
    caplog.set_level("INFO", logger="twinrank")

    async def main():
        async with worker(config) as one:
            path = tmp_path / "state.db"
            with StateStore.open(f"sqlite:///{path}") as store, store.transaction() as change:
                change.document()
            hidden = [(path.with_name(path.name + end), path.with_name("away" + end)) for end in ("", "-wal", "-shm")]
            one.control._store._engine.dispose()
            moved = [pair for pair in hidden if pair[0].exists()]
            for here, away in moved:
                here.rename(away)
            path.mkdir()

            async def lost():
                return "state store lost; the last split holds" in caplog.messages

            await until(lost)
            await asyncio.sleep(0.5)
            assert (await one.predict()).status_code == 200
            assert (await one.get("/livez")).status_code == 200
            assert (await one.get("/metrics")).status_code == 200
            assert (await one.weights({"v1": 4})).status_code == 503
            path.rmdir()
            for here, away in moved:
                away.rename(here)

            async def back():
                return "state store is back" in caplog.messages

            await until(back)
            assert (await one.weights({"v1": 4})).status_code == 200

    run(main())
    assert caplog.messages.count("state store lost; the last split holds") == 1


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

    run(main())


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

    run(main())


def test_switches_at_once_by_two_workers_have_one_order(config):
    async def main():
        async with workers(config, 2) as team:
            answers = await asyncio.gather(*(team[n % 2].weights({"v1": n + 2}) for n in range(10)))
            epochs = [answer.json()["epoch"] for answer in answers]
            assert sorted(epochs) == list(range(2, 12))
            last = answers[epochs.index(11)].json()["weights"]
            assert [one.control.document.weights for one in team] == [last, last]

    run(main())
