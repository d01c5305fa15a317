"""What the ledger has of an experiment: the arm that was assigned, whoever answered and however it ended."""

import asyncio
import sqlite3
import time

import numpy as np
import pytest

from service.config import Settings
from service.errors import problem
from service.experiments.ledger import Behind, Ledger
from service.experiments.samples import KEPT_A_SECOND, Sampler
from service.experiments.units import UnitHash
from service.state import Document, StateStore, samples
from service.state.counts import ANYTIME
from service.state.samples import DRAWS, Kept
from tests.service.experiments.test_feedback import event, predicted, result
from tests.service.workplace import settings, with_two_versions, worker, workers

TRAFFIC = {"weights": {"v1": 90.0, "v2": 10.0}, "default": "v1", "experiment": "home", "coverage": 1.0}


@pytest.fixture(name="state")
def _state(any_state):
    return any_state


async def evidence(one, name="default"):
    await one.state["ledger"].flush()
    return await one.state["ledger"].evidence(name)


def arms(epoch):
    return {arm.version: arm for arm in epoch.arms}


@with_two_versions
async def test_predictions_are_counted_for_the_arm_in_the_unit_s_sub_bucket(one):
    given = {f"u{n}": (await one.predict(f"u{n}")).json()["model_version"] for n in range(60)}
    (epoch,) = (await evidence(one)).epochs
    found = arms(epoch)
    assert {version: arm.share for version, arm in found.items()} == {"v1": 0.9, "v2": 0.1}
    for version, arm in found.items():
        subs = [UnitHash("default")(unit)[0] for unit, to in given.items() if to == version]
        assert arm.predictions.tolist() == np.bincount(subs, minlength=256).tolist()


@with_two_versions
async def test_units_are_counted_once_each(one):
    for n in (*range(30), *range(30)):
        await one.predict(f"u{n}")
    (epoch,) = (await evidence(one)).epochs
    units = np.concatenate([arm.units for arm in epoch.arms])
    assert sorted(units.tolist()) == sorted(UnitHash("default")(f"u{n}")[1] for n in range(30))
    assert all((np.diff(arm.units.astype(float)) > 0).all() for arm in epoch.arms if len(arm.units))
    assert epoch.threshold == 1.0


@with_two_versions
async def test_impressions_and_clicks_go_to_the_arm_and_sub_bucket_of_the_prediction(one):
    prediction = await predicted(one, "u1")
    await result(one, event(prediction, "impression"), event(prediction, "impression", "i2"), event(prediction))
    (epoch,) = (await evidence(one)).epochs
    (arm,) = [arm for arm in epoch.arms if arm.predictions.sum()]
    sub = UnitHash("default")("u1")[0]
    assert (arm.predictions[sub], arm.impressions[sub], arm.clicks[sub]) == (1, 2, 1)
    assert (arm.predictions.sum(), arm.impressions.sum(), arm.clicks.sum()) == (1, 2, 1)


@with_two_versions
async def test_what_the_split_did_not_choose_is_counted_apart(one):
    await one.weights({"v1": 90, "v2": 10}, coverage=1e-9)
    await one.predict("u1")  # outside of the coverage
    await one.predict("")
    override = await predicted(one, "u1", version="v2")
    assert await result(one, event(override)) == (1, 0, 0, 0)
    epoch = (await evidence(one)).epochs[-1]
    assert epoch.uncounted == {"default": 1, "no_unit": 1, "override": 1}
    assert sum(arm.predictions.sum() + arm.clicks.sum() for arm in epoch.arms) == 0


@with_two_versions
async def test_a_failure_stays_with_the_arm(one):
    units = {(await one.predict(f"u{n}")).json()["model_version"]: f"u{n}" for n in range(60)}
    loaded = one.registry.get("v2")
    loaded.predictor.engine.forward = None  # whatever the batch does now, it fails
    assert (await one.predict(units["v2"])).status_code == 500
    (epoch,) = (await evidence(one)).epochs
    assert {version: arm.errors for version, arm in arms(epoch).items()} == {"v1": 0, "v2": 1}


@with_two_versions
async def test_a_client_s_fault_counts_for_nothing(one):
    body = {"instances": [{"no such feature": 1}], "unit_id": "u1"}
    assert (await one.client.post("/predict", json=body)).status_code == 422
    (epoch,) = (await evidence(one)).epochs
    assert sum(arm.predictions.sum() for arm in epoch.arms) == 0


@with_two_versions
async def test_a_change_of_weights_opens_an_epoch(one):
    before = await predicted(one, "u1")
    await one.weights({"v1": 1, "v2": 3}, coverage=0.5)
    await result(one, event(before))
    first, second = (await evidence(one)).epochs
    assert (first.number, first.coverage, first.ended) == (1, 1.0, second.started)
    assert (second.number, second.coverage, second.ended) == (2, 0.5, None)
    assert arms(second)["v2"].share == 0.75
    assert (sum(arm.clicks.sum() for arm in first.arms), sum(arm.clicks.sum() for arm in second.arms)) == (1, 0)


@with_two_versions
async def test_a_version_without_weight_is_an_arm_once_it_has_traffic(one):
    given = await predicted(one, "u1")
    await one.weights({"v1": 1})
    assert list(arms((await evidence(one)).epochs[1])) == ["v1"]
    assert await result(one, event(given)) == (1, 0, 0, 0)


@with_two_versions
async def test_experiments_are_told_by_name(one):
    await one.weights({"v1": 1, "v2": 1}, experiment="home-2", default="v2")
    await one.predict("u1")
    ledger = one.state["ledger"]
    await ledger.flush()
    assert await ledger.names() == ["default", "home-2"]
    assert (await ledger.evidence("home-2")).default == "v2"
    assert await ledger.evidence("nobody") is None
    assert [epoch.number for epoch in (await ledger.evidence("home-2")).epochs] == [2]


@with_two_versions
async def test_predictions_are_in_the_store_within_a_second(one):
    await one.predict("u1")
    await asyncio.sleep(1.0)
    found = await one.state["ledger"].evidence("default")
    assert sum(arm.predictions.sum() for arm in found.epochs[0].arms) == 1


def test_workers_counts_add_and_the_end_writes_what_is_left(artifacts, state):
    async def main():
        config = settings(artifacts, state, weights={"v1": 1.0}, load="none")
        async with workers(config, 2) as team:
            for n in range(20):
                await team[n % 2].predict("u1")
        async with worker(config) as one:
            (epoch,) = (await evidence(one)).epochs
            assert (epoch.arms[0].predictions.sum(), len(epoch.arms[0].units)) == (20, 1)

    asyncio.run(main())


@with_two_versions
async def test_sampled_answers_are_joined_with_their_clicks(one):
    prediction = await predicted(one, "u1", candidates=["i1", "i2", "i3", "i4"], top_k=3)
    await result(
        one, event(prediction, "impression"), event(prediction, "impression", "i2"), event(prediction, "click")
    )
    (joined,) = (await evidence(one)).joined
    score = {"v1": 0.1, "v2": 0.9}[joined.version]
    assert joined.scores == pytest.approx([score, score], abs=1e-6)
    assert joined.clicked.tolist() == [True, False]
    assert joined.units.tolist() == [UnitHash("default")("u1")[1]] * 2
    assert joined.shadow_version is None
    assert np.isnan(joined.shadow).all()


@with_two_versions
async def test_without_impressions_all_that_was_answered_is_joined(one):
    prediction = await predicted(one, "u1", candidates=["i1", "i2", "i3", "i4"], top_k=3)
    await result(one, event(prediction, item="i2"))
    (joined,) = (await evidence(one)).joined
    assert joined.clicked.tolist() == [False, True, False]


def started(state):
    store = StateStore.open(state)
    with store.transaction() as change:
        change.put_traffic({**TRAFFIC, "shadow": None, "comment": ""}, who="test", undo=None)
    return store


def test_shadow_scores_stand_beside_those_that_answered(state):
    async def main():
        with started(state) as store:
            async with Ledger(Settings(), store) as ledger:
                ticket = ledger.open(store.document(), "v1", "split", "u1", rows=False, shadowed=True)
                assert ticket.fields.kept
                ledger.keep(ticket, ["a", "b"], np.float32([0.5, 0.25]), "v3", np.float32([0.75, 0.125]))
                bare = ledger.open(store.document(), "v1", "no_unit", None, rows=True, shadowed=True)
                ledger.keep(bare, None, np.float32([0.5]))
                await ledger.flush()
                (joined,) = (await ledger.evidence("home")).joined
        assert joined.shadow_version == "v3"
        assert sorted(joined.scores.tolist()) == [0.25, 0.5, 0.5]
        assert sorted(joined.shadow[~np.isnan(joined.shadow)].tolist()) == [0.125, 0.75]

    asyncio.run(main())


def test_what_the_store_could_not_take_is_written_later(state):
    async def main():
        with started(state) as store:
            async with Ledger(Settings(), store) as ledger:
                ledger.close(ledger.open(store.document(), "v1", "split", "u1", rows=False), 200)
                taken = ledger._tally.take([])
                ledger._tally.give_back(taken)
                ledger.close(ledger.open(store.document(), "v1", "split", "u1", rows=False), 200)
                await ledger.flush()
                (epoch,) = (await ledger.evidence("home")).epochs
        assert (arms(epoch)["v1"].predictions.sum(), len(arms(epoch)["v1"].units)) == (2, 1)

    asyncio.run(main())


def test_more_than_can_be_counted_soon_is_turned_away_with_429():
    answer = problem(Behind("much waits"), "id")
    assert (answer.status, dict(answer.headers)) == (429, {"Retry-After": "1"})


def kept(number, draw, at=1000):
    return Kept(number.to_bytes(4, "big"), "home", "v1", at, draw, 1, 4, b"\0" * 8, b"\0" * 4, None, None)


def test_an_experiment_s_sample_is_halved_where_it_grows_too_large(state, monkeypatch):
    monkeypatch.setattr(samples, "MOST_KEPT", 40)
    with started(state) as store, store.transaction() as change:
        draws = [n * (DRAWS // 16) for n in range(16)]
        assert change.samples.add("home", [kept(n, draw) for n, draw in enumerate(draws)]) == 1
        assert sorted(one.draw for one in change.samples.kept("home")) == draws[:8]


def test_a_sample_grows_again_once_the_window_has_taken_most_of_it(state, monkeypatch):
    monkeypatch.setattr(samples, "MOST_KEPT", 40)
    with started(state) as store, store.transaction() as change:
        change.samples.add("home", [kept(n, n * (DRAWS // 16)) for n in range(16)])
        assert change.samples.forget(2000, 100) == 8
        assert change.samples.add("home", [kept(99, 0, at=3000)]) == 0


def test_a_worker_keeps_a_share_that_falls_with_the_traffic():
    sampler = Sampler()
    for _ in range(100 * KEPT_A_SECOND):
        sampler.wants("home", 0, False)
    sampler.take(1.0)
    assert sampler.wants("home", DRAWS // 100 - 1, False)
    assert not sampler.wants("home", DRAWS // 100 + 1, False)
    assert sampler.wants("home", DRAWS - 1, True)


def test_old_keys_are_pruned_a_part_at_a_time(state):
    with started(state) as store:
        keys = {at.to_bytes(4, "big") + b"\0" * 12 for at in range(100, 200)}
        timeless = {ANYTIME + bytes([first]) + b"\0" * 14 for first in range(256)}
        with store.transaction() as change:
            assert change.counts.take_keys(keys | timeless) == keys | timeless
            assert change.counts.take_keys(keys | timeless) == set()
            assert [change.counts.forget_keys(150, 20) for _ in range(4)] == [20, 20, 10, 0]
            assert [change.counts.forget_timeless(part, 4, time.time() - 60) for part in range(4)] == [0] * 4
            assert [change.counts.forget_timeless(part, 4, time.time() + 60) for part in range(4)] == [64] * 4
            assert len(change.counts.take_keys(keys | timeless)) == 50 + 256


def test_a_state_file_of_before_the_ledger_opens(tmp_path):
    with started(f"sqlite:///{tmp_path}/state.db"):
        pass
    file = sqlite3.connect(tmp_path / "state.db")
    tables = ["event_keys", "cells", "units", "unit_samples", "kept", "kept_events", "kept_samples", "signing_keys"]
    for table in tables:
        file.execute(f"DROP TABLE {table}")
    file.close()
    with StateStore.open(f"sqlite:///{tmp_path}/state.db") as store:
        assert store.document().experiment == "home"
        with store.transaction() as change:
            assert change.counts.take_keys([b"k" * 16]) == {b"k" * 16}


def test_a_document_without_a_split_gives_tickets_too(state):
    async def main():
        with started(state) as store:
            async with Ledger(Settings(), store) as ledger:
                ticket = ledger.open(Document(), "", "default", "u1", rows=False)
                ledger.close(ticket, 503)
                await ledger.flush()

    asyncio.run(main())
