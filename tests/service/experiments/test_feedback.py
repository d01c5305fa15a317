"""POST /feedback: each event once, whoever sends it, however often and wherever; a bad one harms no other."""

import asyncio

import pytest

from service.api.feedback import MAX_EVENTS
from tests.service.workplace import settings, with_two_versions, worker, workers


@pytest.fixture(name="state")
def _state(any_state):
    return any_state


async def predicted(one, unit="u1", **more):
    body = {"user": {"age": 30}, "candidates": ["i1", "i2", "i3"], "unit_id": unit, **more}
    answer = await one.client.post("/predict", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["prediction_id"]


def event(prediction, kind="click", item="i1", **more):
    return {"prediction_id": prediction, "type": kind, "item_id": item, **more}


async def send(one, *events, **more):
    return await one.client.post("/feedback", json={"events": list(events)}, **more)


async def result(one, *events):
    """(accepted, duplicate, late, invalid)"""
    answer = await send(one, *events)
    assert answer.status_code == 202, answer.text
    return tuple(answer.json()[name] for name in ("accepted", "duplicate", "late", "invalid"))


def alone(check):
    """A test of an async check on one worker with two versions at 90/10."""
    return with_two_versions(check)


@alone
async def test_an_answer_counts_what_became_of_each_event(one):
    prediction = await predicted(one)
    answer = await send(one, event(prediction, "impression"), event(prediction), event(prediction), {"type": "click"})
    assert answer.status_code == 202
    assert answer.json() == {
        "accepted": 2,
        "duplicate": 1,
        "late": 0,
        "invalid": 1,
        "errors": [
            {
                "loc": ["body", "events", 3, "prediction_id"],
                "msg": "must be the id of a prediction",
                "type": "prediction_id",
            }
        ],
    }


@alone
async def test_a_repeated_request_counts_nothing_anew(one):
    events = [event(await predicted(one), kind) for kind in ("impression", "click")]
    assert await result(one, *events) == (2, 0, 0, 0)
    assert await result(one, *events) == (0, 2, 0, 0)


@alone
async def test_an_event_is_known_by_its_id(one):
    prediction = await predicted(one)
    assert await result(one, event(prediction, "impression", event_id="e1")) == (1, 0, 0, 0)
    assert await result(one, event(prediction, "impression", "i2", event_id="e1")) == (0, 1, 0, 0)
    assert await result(one, event(prediction, "impression", event_id="e2")) == (1, 0, 0, 0)


@alone
async def test_an_item_has_one_click_a_prediction_whatever_the_event_ids(one):
    first, second = await predicted(one), await predicted(one)
    assert await result(one, event(first, event_id="e1"), event(first, event_id="e2")) == (1, 1, 0, 0)
    assert await result(one, event(first)) == (0, 1, 0, 0)
    assert await result(one, event(first, item="i2"), event(first, item="i2", event_id="e3")) == (1, 1, 0, 0)
    assert await result(one, event(second, event_id="e4")) == (1, 0, 0, 0)


@alone
async def test_a_repeated_event_id_takes_no_other_item_s_click(one):
    prediction = await predicted(one)
    events = [event(prediction, event_id="e1"), event(prediction, item="i2", event_id="e1")]
    assert await result(one, *events) == (1, 1, 0, 0)
    assert await result(one, event(prediction, item="i2")) == (1, 0, 0, 0)


@alone
async def test_42_and_its_text_are_one_item(one):
    prediction = await predicted(one, candidates=[42, "i1"])
    assert await result(one, event(prediction, item=42), event(prediction, item="42")) == (1, 1, 0, 0)


@alone
async def test_a_click_counts_without_its_impression(one):
    prediction = await predicted(one)
    assert await result(one, event(prediction)) == (1, 0, 0, 0)
    assert await result(one, event(prediction, "impression")) == (1, 0, 0, 0)


@alone
async def test_rows_are_known_by_their_index(one):
    prediction = (await one.predict()).json()["prediction_id"]
    events = [event(prediction, item=item) for item in (0, "0", 1)]
    assert await result(one, *events) == (2, 1, 0, 0)
    assert await result(one, event(prediction, item="i1"), event(prediction, item=-1)) == (0, 0, 0, 2)


BAD = [
    "text",
    None,
    {},
    {"prediction_id": "x" * 40, "type": "click", "item_id": "i1"},
    {"prediction_id": 7, "type": "click", "item_id": "i1"},
    {"type": "view"},
    {"type": ["click"]},
    {"item_id": None},
    {"item_id": ""},
    {"item_id": 1.5},
    {"item_id": True},
    {"item_id": "i" * 2000},
    {"event_id": ""},
    {"event_id": 1.5},
    {"event_id": True},
    {"timestamp": "yesterday"},
    {"timestamp": True},
]


@alone
async def test_one_bad_event_never_fails_the_others(one):
    prediction = await predicted(one)
    whole = event(prediction)
    bad = [{**whole, **one} if isinstance(one, dict) and one and len(one) == 1 else one for one in BAD]
    answer = (await send(one, *bad, whole)).json()
    assert (answer["accepted"], answer["invalid"]) == (1, len(BAD))
    assert [error["loc"][2] for error in answer["errors"]] == list(range(len(BAD)))


@alone
async def test_at_most_20_errors_are_shown(one):
    answer = (await send(one, *[{}] * 50)).json()
    assert (answer["invalid"], len(answer["errors"])) == (50, 20)


@alone
async def test_timestamps_of_both_kinds_are_taken(one):
    prediction = await predicted(one)
    stamps = [1_700_000_000, 1_700_000_000.5, "2026-01-01T00:00:00Z", None]
    events = [event(prediction, item=f"i{n}", timestamp=stamp) for n, stamp in enumerate(stamps)]
    assert await result(one, *events) == (4, 0, 0, 0)


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"{", 400, None),
        (b'{"events": NaN}', 400, None),
        (b"[]", 422, "dict_type"),
        (b"{}", 422, "missing"),
        (b'{"events": 1}', 422, "list_type"),
        (b'{"events": [], "even": 1}', 422, "extra_forbidden"),
        (b'{"events": [' + b",".join([b"0"] * (MAX_EVENTS + 1)) + b"]}", 413, None),
    ],
)
def test_a_body_that_is_no_list_of_events_is_refused_whole(config, body, status, kind):
    async def main():
        async with worker(config) as one:
            answer = await one.client.post("/feedback", content=body)
            assert answer.status_code == status
            if kind is not None:
                assert [fault["type"] for fault in answer.json()["detail"]] == [kind]

    asyncio.run(main())


@alone
async def test_no_events_are_no_fault(one):
    assert await result(one) == (0, 0, 0, 0)


def test_feedback_needs_the_client_token_where_one_is_set(artifacts, state):
    async def main():
        async with worker(settings(artifacts, state, client_token="hush")) as one:
            assert (await send(one)).status_code == 401
            assert (await send(one, headers={"Authorization": "Bearer hush"})).status_code == 202

    asyncio.run(main())


def test_any_worker_takes_what_any_other_predicted_and_counts_it_once(artifacts, state):
    async def main():
        config = settings(artifacts, state, weights={"v1": 1.0}, load="none")
        async with workers(config, 2) as (first, second):
            events = [event(await predicted(first, f"u{n}")) for n in range(50)]
            found = await asyncio.gather(*(result(one, *events) for one in (first, second) * 4))
            assert [sum(column) for column in zip(*found, strict=True)] == [50, 350, 0, 0]

    asyncio.run(main())


def test_the_ids_of_before_a_restart_are_good_after_it(artifacts, state):
    async def main():
        config = settings(artifacts, state)
        async with worker(config) as one:
            prediction = await predicted(one)
        async with worker(config) as one:
            assert await result(one, event(prediction)) == (1, 0, 0, 0)

    asyncio.run(main())


def test_a_changed_secret_is_good_beside_the_one_before(artifacts, state):
    async def main():
        old, new = "an old secret, long", "a new secret, longer"
        async with worker(settings(artifacts, state, secret=old)) as one:
            prediction = await predicted(one)
        async with worker(settings(artifacts, state, secret=f"{new},{old}")) as one:
            assert await result(one, event(prediction)) == (1, 0, 0, 0)
        async with worker(settings(artifacts, state, secret=new)) as one:
            assert await result(one, event(prediction)) == (0, 0, 0, 1)

    asyncio.run(main())


@alone
async def test_an_epoch_that_never_was_is_invalid(one):
    prediction = await predicted(one)
    one.control.document = type(one.control.document)(epoch=99, weights={"v1": 1.0}, default="v1")
    assert await result(one, event(await predicted(one)), event(prediction)) == (1, 0, 0, 1)


@alone
async def test_metrics_tell_results_impressions_and_clicks(one):
    prediction = await predicted(one, version="v1")
    await result(one, event(prediction, "impression"), event(prediction, "impression", "i2"), event(prediction), {})
    await result(one, event(prediction))
    text = (await one.get("/metrics")).text
    for line in (
        'twinrank_feedback_total{result="accepted"} 3.0',
        'twinrank_feedback_total{result="duplicate"} 1.0',
        'twinrank_feedback_total{result="late"} 0.0',
        'twinrank_feedback_total{result="invalid"} 1.0',
        'twinrank_impressions_total{version="v1"} 2.0',
        'twinrank_clicks_total{version="v1"} 1.0',
        'twinrank_clicks_total{version="v2"} 0.0',
    ):
        assert line in text.splitlines()


@alone
async def test_feedback_stands_in_the_openapi_document(one):
    document = (await one.get("/openapi.json")).json()
    assert set(document["paths"]["/feedback"]["post"]["responses"]) >= {"202", "429"}
