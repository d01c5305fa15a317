"""Plans over HTTP on real workers: statuses and bodies of the contract, and a rollback by two workers at once."""

import asyncio
import time

import pytest

from tests.service.workplace import settings, until, with_two_versions, worker, workers

PATH = "/experiments/default/plan"
PLAN = {
    "version": "v2",
    "steps": [{"coverage": 0.5, "seconds": 3600}, {"coverage": 1.0, "seconds": 604800}],
    "guardrails": {"errors": True, "p99_ms": 50, "ctr_margin": 0.02},
    "promote": {"seconds": 604800, "margin": 0.0},
}


@with_two_versions
async def test_a_plan_is_told_with_its_state_and_why(one):
    answer = await one.put(PATH, PLAN)
    assert answer.status_code == 200
    body = (await one.get(PATH)).json()
    assert body == answer.json()
    assert {key: body[key] for key in PLAN} == PLAN
    assert (body["state"], body["step"], body["why"]) == ("running", 1, "step 1 of 2: coverage 0.5, for 3600 s")


@with_two_versions
async def test_a_plan_sets_its_first_coverage_as_an_ordinary_change(one):
    await one.put(PATH, PLAN)
    assert (await one.get("/models")).json()["coverage"] == 0.5
    newest = (await one.get("/models/weights/history")).json()["history"][0]
    assert (newest["who"], newest["comment"]) == ("plan", "plan: step 1 of 2, coverage 0.5")


@with_two_versions
async def test_without_a_plan_there_is_404(one):
    assert (await one.get(PATH)).status_code == 404
    assert (await one.client.delete(PATH)).status_code == 404


@with_two_versions
async def test_a_stopped_plan_is_still_told(one):
    await one.put(PATH, PLAN)
    assert (await one.client.delete(PATH)).json()["state"] == "stopped"
    assert (await one.get(PATH)).json()["why"] == "stopped by local in step 1"
    assert (await one.get("/models")).json()["coverage"] == 0.5


BAD = (
    ({}, ["version"]),
    ({"version": "../v2"}, ["version"]),
    ({"steps": []}, ["steps"]),
    ({"steps": [{"coverage": 0, "seconds": 1}]}, ["steps", 0, "coverage"]),
    ({"steps": [{"coverage": 1.5, "seconds": 1}]}, ["steps", 0, "coverage"]),
    ({"steps": [{"coverage": 1, "seconds": 0}]}, ["steps", 0, "seconds"]),
    ({"steps": [{"coverage": 1}]}, ["steps", 0, "seconds"]),
    ({"steps": [{"coverage": 0.5, "seconds": 1}, {"coverage": 0.4, "seconds": 1}]}, ["steps", 1, "coverage"]),
    ({"steps": [{"coverage": True, "seconds": 1}]}, ["steps", 0, "coverage"]),
    ({"guardrails": {"errors": 1}}, ["guardrails", "errors"]),
    ({"guardrails": {"p99_ms": -1}}, ["guardrails", "p99_ms"]),
    ({"guardrails": {"ctr_margin": "x"}}, ["guardrails", "ctr_margin"]),
    ({"guardrails": {"eror": True}}, ["guardrails", "eror"]),
    ({"promote": {"seconds": -1, "margin": 0}}, ["promote", "seconds"]),
    ({"promote": {"seconds": 1}}, ["promote", "margin"]),
    ({"salt": 1}, ["salt"]),
)


@with_two_versions
async def test_bad_plans_are_refused_with_their_place_and_change_nothing(one):
    before = (await one.get("/models")).content
    for change, loc in BAD:
        answer = await one.put(PATH, {**PLAN, **change} if change else {"steps": PLAN["steps"]})
        assert answer.status_code == 422, change
        assert answer.json()["detail"][0]["loc"] == ["body", *loc], change
    assert (await one.get("/models")).content == before


@with_two_versions
async def test_versions_that_cannot_be_ramped_are_404_and_409(one):
    for version, status in (("v9", 404), ("v1", 409), ("v3", 409)):
        assert (await one.put(PATH, {**PLAN, "version": version})).status_code == status, version
    assert (await one.put("/experiments/nope/plan", PLAN)).status_code == 404


@with_two_versions
async def test_if_match_is_honoured(one):
    answer = await one.put(PATH, PLAN, headers={"If-Match": '"99"'})
    assert (answer.status_code, answer.headers["etag"]) == (412, '"1"')


def test_a_plan_needs_the_admin_token(artifacts, tmp_path):
    async def main():
        config = settings(artifacts, tmp_path / "state.db", weights={"v1": 1.0}, load="none", admin_token="secret")
        async with worker(config) as one:
            assert (await one.put(PATH, PLAN)).status_code == 401
            assert (await one.client.delete(PATH)).status_code == 401

    asyncio.run(main())


@pytest.mark.parametrize("trouble", ["errors", "slow"])
def test_a_bad_challenger_is_rolled_back_by_two_workers_within_five_seconds_and_once(artifacts, tmp_path, trouble):
    async def main():
        config = settings(
            artifacts, tmp_path / "state.db", weights={"v1": 50.0, "v2": 50.0}, load="none", budget_ms=1e5
        )
        async with workers(config, 2) as team:
            steps = [{"coverage": 1.0, "seconds": 3600}]
            plan = {"version": "v2", "steps": steps, "guardrails": {"p99_ms": 20}}
            assert (await team[0].put(PATH, plan)).status_code == 200
            await asyncio.sleep(1.5)  # until both count
            for one in team:
                spoil(one.registry.get("v2").batcher, trouble)
            for n in range(400):
                await team[n % 2].predict(f"u{n}")
            begun = time.monotonic()

            async def gone():
                return (await team[0].get("/models")).json()["weights"] == {"v1": 50}

            await until(gone, 8)
            assert time.monotonic() - begun < 5
            await asyncio.sleep(2.5)
            history = (await team[1].get("/models/weights/history")).json()["history"]
            assert [row["who"] for row in history] == ["plan", "start"]
            assert (await team[1].get(PATH)).json()["state"] == "rolled_back"

    asyncio.run(main())


def spoil(batcher, trouble: str) -> None:
    """Every third request fails, or every call takes 30 ms."""
    original, calls = batcher._run, iter(range(10**6))

    def run(requests):
        if trouble == "slow":
            time.sleep(0.026)
        elif next(calls) % 3 == 0:
            raise ZeroDivisionError("division by zero")
        return original(requests)

    batcher._run = run
