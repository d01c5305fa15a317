"""The shadow on real workers: it scores after the answer, is counted, and never stands in the way."""

import asyncio

import pytest

from service.experiments.agreement import Sums
from service.experiments.shadow import MAX_REQUESTS, Sample
from service.experiments.shadow_report import read_shadow, shadow_report
from service.state import Document
from service.state.shadows import Pair, read_sums
from service.traffic import uniform
from tests.service.workplace import settings, until, with_two_versions, worker

SHADOW = {"version": "v2", "fraction": 1.0}


def result(one, version: str, name: str) -> float:
    text = one.metrics.render(None)[0].decode()
    line = f'twinrank_shadow_total{{result="{name}",version="{version}"}} '
    return next(float(row.removeprefix(line)) for row in text.splitlines() if row.startswith(line))


async def sums_of(one, experiment: str = "default") -> dict[Pair, Sums]:
    rows = await one.control.read(lambda view: read_sums(view, experiment))
    return {pair: Sums(**row) for pair, row in rows}


def test_the_sample_is_that_of_the_hash_salted_for_the_shadow():
    sample = Sample.of(Document(experiment="e", shadow={"version": "v2", "fraction": 0.3}))
    units = [f"u{n}" for n in range(2000)]
    assert [sample.holds(unit) for unit in units] == [uniform(f"e/shadow\0{unit}".encode()) < 0.3 for unit in units]


def test_a_larger_fraction_holds_the_units_of_a_smaller_one():
    small, large = (Sample(b"", f, b"e/shadow\0") for f in (0.1, 0.4))
    held = [unit for unit in map(str, range(2000)) if small.holds(unit)]
    assert held
    assert all(large.holds(unit) for unit in held)


def test_requests_without_a_unit_are_drawn():
    sample = Sample("v2", 0.5, b"e/shadow\0")
    assert 300 < sum(sample.holds(None) for _ in range(1000)) < 700


def test_a_document_without_a_shadow_samples_nothing():
    assert Sample.of(Document()) is None


@with_two_versions
async def test_what_the_shadow_found_is_in_the_store_within_two_seconds(one):
    await one.weights({"v1": 1}, shadow=SHADOW)
    for n in range(5):
        assert (await one.predict(f"u{n}")).json()["model_version"] == "v1"

    async def written():
        found = await sums_of(one)
        return sum(sums.requests for sums in found.values()) == 5

    await until(written, 4)
    ((pair, sums),) = (await sums_of(one)).items()
    assert pair == Pair("default", 2, "v1", "v2")
    assert sums.gap / sums.requests == pytest.approx(0.8, abs=1e-6)
    assert result(one, "v2", "scored") == 5


@with_two_versions
async def test_a_version_does_not_shadow_its_own_answers(one):
    await one.weights({"v2": 1}, default="v2", shadow=SHADOW)
    await one.predict()
    await asyncio.sleep(0.1)
    assert result(one, "v2", "scored") == 0


@with_two_versions
async def test_a_shadow_is_not_counted_as_an_assignment(one):
    await one.weights({"v1": 1}, shadow=SHADOW)
    await one.predict()

    async def scored():
        return result(one, "v2", "scored") == 1

    await until(scored)
    text = one.metrics.render(None)[0].decode()
    assert 'twinrank_assignments_total{reason="split",version="v2"} 0.0' in text


@with_two_versions
async def test_the_series_of_the_shadow_stand_at_zero_from_the_load_on(one):
    assert [result(one, "v1", name) for name in ("scored", "dropped", "failed")] == [0, 0, 0]


@with_two_versions
async def test_a_full_queue_drops_and_counts(one):
    await one.weights({"v1": 1}, shadow=SHADOW)
    batcher = one.registry.get("v2").batcher
    batcher._running = object()  # as if a batch ran all the time
    statuses = [(await one.predict(f"u{n}")).status_code for n in range(MAX_REQUESTS + 20)]
    batcher._running = None
    assert statuses.count(200) > MAX_REQUESTS
    assert result(one, "v2", "dropped") == statuses.count(200) - MAX_REQUESTS


@with_two_versions
async def test_a_shadow_that_fails_is_counted_and_answers_go_on(one):
    await one.weights({"v1": 1}, shadow=SHADOW)

    def broken(requests):
        raise ZeroDivisionError("division by zero")

    one.registry.get("v2").batcher._run = broken
    assert (await one.predict()).status_code == 200

    async def failed():
        return result(one, "v2", "failed") == 1

    await until(failed)
    assert (await one.predict()).status_code == 200


@with_two_versions
async def test_the_shadow_is_kept_by_a_change_that_does_not_name_it(one):
    await one.weights({"v1": 1}, shadow=SHADOW)
    answer = await one.weights({"v1": 1, "v2": 0}, coverage=0.5)
    assert answer.json()["shadow"] == SHADOW


@with_two_versions
async def test_null_clears_the_shadow_and_opens_an_epoch(one):
    before = (await one.weights({"v1": 1}, shadow=SHADOW)).json()["epoch"]
    answer = (await one.weights({"v1": 1}, shadow=None)).json()
    assert (answer["shadow"], answer["epoch"]) == (None, before + 1)


@with_two_versions
async def test_a_version_that_shadows_is_not_unloaded(one):
    await one.weights({"v1": 1}, shadow=SHADOW)
    answer = await one.client.delete("/models/v2")
    assert (answer.status_code, "shadows" in answer.json()["detail"]) == (409, True)
    assert (await one.weights({"v1": 1}, shadow=None)).status_code == 200
    assert (await one.client.delete("/models/v2")).status_code == 200


@with_two_versions
async def test_a_rollback_brings_the_shadow_back(one):
    await one.weights({"v1": 1}, shadow=SHADOW)
    await one.weights({"v1": 1}, shadow=None)
    answer = await one.client.post("/models/weights/rollback")
    assert answer.json()["shadow"] == SHADOW


@with_two_versions
async def test_a_dry_run_of_a_shadow_changes_nothing(one):
    answer = await one.weights({"v1": 1}, "?dry_run=true", shadow=SHADOW)
    assert answer.json()["shadow"] == SHADOW
    assert (await one.get("/models")).json()["shadow"] is None


def test_the_shadow_outlives_a_restart(artifacts, tmp_path):
    async def main():
        config = settings(artifacts, tmp_path / "state.db", weights={"v1": 90.0, "v2": 10.0}, load="none")
        async with worker(config) as one:
            await one.weights({"v1": 1}, shadow=SHADOW)
        async with worker(config) as one:
            assert (await one.get("/models")).json()["shadow"] == SHADOW

    asyncio.run(main())


@with_two_versions
async def test_the_report_compares_and_knows_what_was_missing(one):
    await one.weights({"v1": 1}, shadow=SHADOW)
    for n in range(3):
        await one.predict(f"u{n}")

    async def written():
        return sum(sums.requests for sums in (await sums_of(one)).values()) == 3

    await until(written, 4)
    found = await one.control.read(lambda view: read_shadow(view, "default"))
    report = shadow_report(found, "v1", (), {})
    assert (report["version"], report["fraction"], report["leak"]["state"]) == ("v2", 1.0, "collecting")
    assert [(row["version"], row["requests"]) for row in report["compared"]] == [("v1", 3)]
    assert (found.seen["age"].rows, found.seen["age"].missing, found.seen["price"].missing) == (3, 0, 3)


@with_two_versions
async def test_an_experiment_that_never_had_a_shadow_reports_none(one):
    assert await one.control.read(lambda view: read_shadow(view, "default")) is None
