"""Catalog revisions in real workers: switched everywhere or nowhere, restored by whoever comes later."""

import asyncio
import shutil

import pytest

from service import changes, rollout
from service.control import Seat
from service.registry import LoadError
from service.scoring.predictor import RankRequest
from tests.service.workplace import settings, until, with_two_versions, worker, workers
from tests.tiny import add_revision

# v3 scores like a model: a price that moves moves the score.
CHANGED = [{"item_id": "i1", "price": 19.0}, {"item_id": "new", "price": 5.0, "genres": ["a"]}]


@pytest.fixture(name="artifacts")
def _artifacts(artifacts):
    """v3 has revision 1: i1 at another price, and a new item; and revision 2: that alone."""
    add_revision(artifacts / "v3", CHANGED)
    add_revision(artifacts / "v3", [{"item_id": "new", "price": 5.0, "genres": ["a"]}], replace=True)
    return artifacts


async def ranked(one, *items):
    body = {"user": {"age": 30}, "candidates": [*items], "version": "v3"}
    answer = await one.client.post("/predict", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def scores(one, *items):
    return (await ranked(one, *items))["predictions"]


async def switch(one, revision, version="v3"):
    return await one.put(f"/models/{version}/catalog", {"revision": revision})


def revisions(team):
    return [one.registry.catalog("v3") for one in team]


def damage(artifacts, revision):
    (artifacts / "v3" / "catalogs" / f"{revision}.parquet").write_bytes(b"PAR1")


def test_a_switch_answers_when_every_worker_has_the_catalog(config):
    async def main():
        async with workers(config, 3) as team:
            await team[0].put("/models/v3")
            before = await scores(team[1], "i1", "i2")
            assert (await ranked(team[2], "new"))["unknown_items"] == 1
            answer = await switch(team[0], 1)
            assert answer.status_code == 200, answer.text
            assert revisions(team) == [1, 1, 1]
            after = [await scores(one, "i1", "i2") for one in team]
            assert after[0] == after[1] == after[2]
            assert after[0][0] != before[0]
            assert after[0][1] == before[1]
            assert [(await ranked(one, "new"))["unknown_items"] for one in team] == [0, 0, 0]

    asyncio.run(main())


def test_a_switch_back_gives_the_scores_from_before(config):
    async def main():
        async with workers(config, 2) as team:
            await team[0].put("/models/v3")
            before = await scores(team[1], "i1", "new")
            for revision in (1, 2, 0):
                assert (await switch(team[revision % 2], revision)).status_code == 200
            assert [await scores(one, "i1", "new") for one in team] == [before, before]

    asyncio.run(main())


@with_two_versions
async def test_the_answer_and_the_listing_tell_the_catalog(one):
    await one.put("/models/v3")
    answer = await switch(one, 1)
    body, listed = answer.json(), (await one.get("/models/v3")).json()
    assert (body["version"], body["state"], body["weight"]) == ("v3", "ready", 0)
    assert (body["catalog"]["revision"], body["catalog"]["rows"]) == (1, 21)
    assert listed["catalog"] == body["catalog"]
    assert [(told["revision"], told["rows"]) for told in listed["catalog"]["revisions"]] == [(0, 20), (1, 21), (2, 1)]
    assert answer.headers["etag"] == '"1"'


@with_two_versions
async def test_a_version_never_switched_is_at_its_own_catalog(one):
    catalog = (await one.get("/models/v1")).json()["catalog"]
    assert (catalog["revision"], catalog["rows"], len(catalog["revisions"])) == (0, 20, 1)


@with_two_versions
async def test_the_same_revision_again_is_200_and_changes_nothing(one):
    await one.put("/models/v3")
    first = await switch(one, 1)
    catalog, document = one.registry.get("v3").predictor.catalog, one.control.document
    again = await switch(one, 1)
    assert (again.status_code, again.json()) == (200, first.json())
    assert one.registry.get("v3").predictor.catalog is catalog
    assert one.control.document == document


@with_two_versions
async def test_a_switch_opens_no_epoch_and_is_no_change_of_the_split(one):
    await one.put("/models/v3")
    before = (await one.get("/models/weights/history")).json()
    assert (await switch(one, 1)).status_code == 200
    assert one.control.document.epoch == 1
    assert (await one.get("/models/weights/history")).json() == before


@with_two_versions
async def test_what_is_not_there_is_404_and_what_is_not_loaded_409(one):
    unloaded = await switch(one, 1)
    await one.put("/models/v3")
    version, revision = await switch(one, 1, "v9"), await switch(one, 7)
    assert (unloaded.status_code, version.status_code, revision.status_code) == (409, 404, 404)
    assert "load it first" in unloaded.json()["detail"]
    assert "no catalog revision 7 of version 'v3' (there are 0, 1, 2)" in revision.json()["detail"]


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({}, "revision"),
        ({"revision": "1"}, "revision"),
        ({"revision": True}, "revision"),
        ({"revision": -1}, "revision"),
        ({"revision": 1.0}, "revision"),
        ({"revision": None}, "revision"),
        ({"revision": 1, "comment": "x"}, "comment"),
    ],
)
def test_a_body_that_names_no_revision_is_422(artifacts, tmp_path, body, loc):
    async def check(one):
        await one.put("/models/v3")
        answer = await one.put("/models/v3/catalog", body)
        assert answer.status_code == 422
        assert answer.json()["detail"][0]["loc"] == ["body", loc]
        assert one.registry.catalog("v3") == 0

    with_two_versions(check)(artifacts, f"sqlite:///{tmp_path}/state.db")


@with_two_versions
async def test_a_dry_run_is_refused_rather_than_made(one):
    await one.put("/models/v3")
    answer = await one.client.put("/models/v3/catalog?dry_run=true", json={"revision": 1})
    assert answer.status_code == 422
    assert one.registry.catalog("v3") == 0


def test_a_switch_needs_the_admin_token(artifacts, tmp_path):
    config = settings(artifacts, tmp_path / "state.db", weights={"v3": 1.0}, load="none", admin_token="secret")

    async def main():
        async with worker(config) as one:
            assert (await switch(one, 1)).status_code == 401
            header = {"Authorization": "Bearer secret"}
            answer = await one.client.put("/models/v3/catalog", json={"revision": 1}, headers=header)
            assert answer.status_code == 200

    asyncio.run(main())


def test_ld02_a_damaged_revision_is_422_and_nothing_else_changes(config, artifacts):
    damage(artifacts, 2)

    async def main():
        async with workers(config, 2) as team:
            await team[0].put("/models/v3")
            await switch(team[0], 1)
            before, document = await scores(team[0], "i1"), team[0].control.document
            answer = await switch(team[0], 2)
            assert answer.status_code == 422
            assert "catalogs/2.parquet: its sha256" in answer.json()["detail"]
            assert team[0].control.document == document
            assert [await scores(one, "i1") for one in team] == [before, before]
            assert (await team[0].get("/models/v3")).json()["catalog"]["revision"] == 1

    asyncio.run(main())


def test_a_revision_that_fails_in_another_worker_is_undone_everywhere(config, artifacts, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(artifacts, other)
    damage(other, 2)
    there_too = settings(other, tmp_path / "state.db")

    async def main():
        async with worker(config, Seat("here", "0")) as one, worker(there_too, Seat("there", "0")) as two:
            await one.put("/models/v3")
            await switch(one, 1)
            answer = await switch(one, 2)
            assert answer.status_code == 422
            assert "catalogs/2.parquet" in answer.json()["detail"]
            assert "there" in answer.json()["detail"]

            async def undone():
                return revisions([one, two]) == [1, 1] and two.control.document.catalogs == {"v3": 1}

            await until(undone)
            shutil.copytree(artifacts, other, dirs_exist_ok=True)
            assert (await switch(one, 2)).status_code == 200
            assert revisions([one, two]) == [2, 2]

    asyncio.run(main())


def test_a_restart_and_a_replacement_come_with_the_revision(config):
    async def main():
        async with worker(config, Seat("here", "0", replacement=True)) as one:
            await one.put("/models/v3")
            await switch(one, 1)
            wanted = await scores(one, "i1", "new")
            async with worker(config, Seat("here", "1", replacement=True)) as two:
                assert (two.registry.catalog("v3"), await scores(two, "i1", "new")) == (1, wanted)
        async with worker(config) as one:

            async def restored():
                return one.registry.get("v3") is not None

            await until(restored)
            assert await scores(one, "i1", "new") == wanted

    asyncio.run(main())


def test_a_worker_that_was_away_follows_the_catalog(config):
    async def main():
        async with workers(config, 2) as team:
            await team[0].put("/models/v3")

            def stored(change):
                return changes.switch_catalog(change, "v3", 2)[0]

            team[0].control.apply(await team[0].control.change(stored))

            async def followed():
                return revisions(team) == [2, 2]

            await until(followed)

    asyncio.run(main())


def test_an_unload_forgets_the_revision(config):
    async def main():
        async with worker(config) as one:
            await one.put("/models/v3")
            await switch(one, 1)
            assert (await one.client.delete("/models/v3")).status_code == 200
            assert (await one.put("/models/v3")).status_code == 200
            assert one.registry.catalog("v3") == 0
            assert (await one.get("/models/v3")).json()["catalog"]["revision"] == 0

    asyncio.run(main())


def test_a_load_of_what_is_ready_keeps_its_revision(config):
    async def main():
        async with workers(config, 2) as team:
            await team[0].put("/models/v3")
            await switch(team[0], 1)
            assert (await team[1].put("/models/v3")).status_code == 200
            await asyncio.sleep(0.3)
            assert revisions(team) == [1, 1]

    asyncio.run(main())


def test_a_restart_with_a_damaged_revision_says_so_instead_of_serving_another(config, artifacts):
    async def main():
        async with worker(config) as one:
            await one.put("/models/v3")
            await switch(one, 1)
        damage(artifacts, 1)
        async with worker(config) as one:

            async def told():
                listed = (await one.get("/models/v3")).json()
                return listed["state"] == "failed" and "catalogs/1.parquet" in listed["error"]

            await until(told)
            assert (await one.predict()).status_code == 200

    asyncio.run(main())


def test_switches_at_once_by_two_workers_end_with_one_catalog_everywhere(config):
    async def main():
        async with workers(config, 2) as team:
            await team[0].put("/models/v3")
            answers = await asyncio.gather(*(switch(team[n % 2], n % 3) for n in range(9)))
            assert {answer.status_code for answer in answers} <= {200, 409}
            assert 200 in {answer.status_code for answer in answers}

            async def agreed():
                stored = team[0].control.document
                return stored == team[1].control.document and revisions(team) == [stored.catalog("v3")] * 2

            await until(agreed)

    asyncio.run(main())


def test_a_switch_is_a_conflict_where_the_version_is_unloaded_meanwhile(config):
    async def main():
        async with worker(config) as one:
            await one.put("/models/v3")
            [row] = await one.control.workers()
            ghost = type(row)(**{**{f: getattr(row, f) for f in row.__slots__}, "worker": "ghost"})
            await one.control.change(lambda change: change.tell(ghost))
            switching = asyncio.create_task(rollout.switch_catalog(one.control, one.registry, "v3", 1))

            async def asked():
                return one.control.document.catalogs == {"v3": 1}

            await until(asked)
            one.control.apply(await one.control.change(lambda change: changes.unload(change, "v3", {"v3"})))
            with pytest.raises(changes.Conflict, match="meanwhile"):
                await switching

    asyncio.run(main())


def test_a_request_that_began_before_the_switch_keeps_the_old_catalog_until_it_ends(config):
    async def main():
        async with worker(config) as one:
            await one.put("/models/v3")
            predictor = one.registry.get("v3").predictor
            asked = RankRequest({"age": 30}, ["i1", "i19"])
            batch, wanted = predictor.encode([asked]), predictor.scores_of(asked).tolist()
            await switch(one, 2)
            assert predictor.score(batch)[0].tolist() == wanted
            assert predictor.scores_of(asked).tolist() != wanted

    asyncio.run(main())


def test_a_catalog_that_cannot_be_had_leaves_the_old_one(config, artifacts):
    damage(artifacts, 1)

    async def main():
        async with worker(config) as one:
            await one.registry.load("v3")
            catalog = one.registry.get("v3").predictor.catalog
            with pytest.raises(LoadError, match=r"catalogs/1\.parquet"):
                await one.registry.switch_catalog("v3", 1)
            with pytest.raises(LoadError, match="not ready"):
                await one.registry.switch_catalog("v2", 1)
            assert one.registry.get("v3").predictor.catalog is catalog

    asyncio.run(main())


def test_a_revision_added_while_the_version_serves_can_be_switched_to(config, artifacts):
    async def main():
        async with worker(config) as one:
            await one.put("/models/v3")
            assert (await switch(one, 3)).status_code == 404
            await asyncio.to_thread(add_revision, artifacts / "v3", CHANGED)
            assert (await switch(one, 3)).status_code == 200

    asyncio.run(main())
