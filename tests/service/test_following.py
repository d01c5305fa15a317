"""Workers that follow one store: switches reach all, restarts and replacements find what is stored."""

import asyncio
import time
from dataclasses import replace

import pytest

from service.control import Seat
from service.opening import Alone, Computing
from service.state import StateStore
from tests.service.workplace import break_version, until, worker, workers


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

    asyncio.run(main())


def test_a_switch_is_seen_by_the_listing_of_every_worker(config):
    async def main():
        async with workers(config, 2) as team:
            await team[0].weights({"v1": 7})
            listed = [(await one.get("/models")).json() for one in team]
        assert listed[0] == listed[1]
        assert listed[0]["weights"] == {"v1": 7}
        assert [replica["epoch"] for replica in listed[0]["replicas"]] == [listed[0]["epoch"]]

    asyncio.run(main())


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

    asyncio.run(main())


def test_a_restart_restores_a_version_at_weight_0(config):
    async def main():
        async with worker(config) as one:
            await one.put("/models/v3")
        async with worker(config) as one:

            async def restored():
                return one.registry.get("v3") is not None

            await until(restored)

    asyncio.run(main())


class Slow(Alone):
    """Loads take four seconds."""

    def version(self, name, revision, *, beside=False):
        time.sleep(4)
        return super().version(name, revision, beside=beside)


def test_a_worker_that_loads_goes_on_telling_that_it_lives(config, artifacts):
    async def main():
        opening = Slow(artifacts, Computing())
        async with worker(replace(config, load="none", weights={}), ready=False, opening=opening) as one:
            loading, ages = asyncio.create_task(one.put("/models/v2")), []
            while not loading.done():
                ages += [time.time() - worker.seen for worker in await one.control.workers()]
                await asyncio.sleep(0.1)
            assert (await loading).status_code == 200
            assert len(ages) > 10
            assert max(ages) < 2.2

    asyncio.run(main())


def test_a_replacement_is_not_let_in_before_it_is_ready(config, artifacts):
    async def main():
        async with worker(config, Seat("here", "0", replacement=True)) as one:
            async with worker(config, Seat("here", "1", replacement=True)) as two:
                assert two.control.unready() is None
            assert [row.worker for row in await one.control.workers()] == ["0"]

    asyncio.run(main())


def test_a_replacement_that_cannot_load_waits_while_a_sibling_answers(config, artifacts):
    async def main():
        async with worker(config, Seat("here", "0", replacement=True)):
            break_version(artifacts, "v1")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(come_and_go(), 1.0)

    async def come_and_go():
        async with worker(config, Seat("here", "1", replacement=True)):
            pass

    asyncio.run(main())


def test_a_replacement_without_a_sibling_comes_to_say_why(config, artifacts):
    break_version(artifacts, "v1")

    async def main():
        async with worker(config, Seat("here", "1", replacement=True), ready=False) as alone:
            answer = await alone.get("/readyz")
            assert answer.status_code == 503
            assert "model.pt" in answer.json()["reason"]

    asyncio.run(main())


def test_a_change_waits_no_longer_than_two_seconds_for_a_worker_that_is_gone(config):
    async def main():
        async with worker(config) as one:
            [row] = await one.control.workers()
            ghost = type(row)(**{**{f: getattr(row, f) for f in row.__slots__}, "worker": "ghost"})
            await one.control.change(lambda change: change.tell(ghost))
            begun = time.monotonic()
            assert (await one.weights({"v1": 3})).status_code == 200
            return time.monotonic() - begun

    assert 1.5 < asyncio.run(main()) < 3.5


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

    asyncio.run(main())
    assert caplog.messages.count("state store lost; the last split holds") == 1


def test_switches_at_once_by_two_workers_have_one_order(config):
    async def main():
        async with workers(config, 2) as team:
            answers = await asyncio.gather(*(team[n % 2].weights({"v1": n + 2}) for n in range(10)))
            epochs = [answer.json()["epoch"] for answer in answers]
            assert sorted(epochs) == list(range(2, 12))
            last = answers[epochs.index(11)].json()["weights"]
            assert [one.control.document.weights for one in team] == [last, last]

    asyncio.run(main())
