"""POST /predict: what a right request gets."""

import asyncio
import json
import time
from typing import Any

import numpy as np
import pytest

from service.traffic import Split
from tests.service.desk import ask, by_price, desk

ROW = {"user_id": "u1", "age": 30, "price": 0, "genres": ["a"]}
RANK = {"user": {"user_id": "u1", "age": 30}, "candidates": ["i0", "i19", "i5"]}
BOTH = {"v1": by_price, "v2": by_price}


def test_rows_get_one_probability_each_in_the_requests_order():
    answer = ask({"instances": [{**ROW, "price": price} for price in (0, 19, 9.5)]})
    assert answer.status == 200
    assert answer.json()["predictions"] == pytest.approx([0.1, 0.9, 0.5], abs=1e-6)
    assert set(answer.json()) == {"prediction_id", "model_version", "assignment", "predictions"}


def test_candidates_get_one_probability_each_in_the_requests_order():
    answer = ask(RANK).json()
    assert answer["predictions"] == pytest.approx([0.1, 0.9, 0.1 + 0.8 * 5 / 19], abs=1e-6)
    assert answer["unknown_items"] == 0
    assert "ranking" not in answer


def test_top_k_gives_the_best_with_ties_in_request_order():
    candidates = ["i0", "i5", {"item_id": "i7", "price": 5}, "i19", "i5"]
    answer = ask({**RANK, "candidates": candidates, "top_k": 4}).json()
    assert [one["item_id"] for one in answer["ranking"]] == ["i19", "i5", "i7", "i5"]
    assert answer["ranking"][0]["score"] == pytest.approx(0.9, abs=1e-6)
    assert "predictions" not in answer


def test_top_k_beyond_the_candidates_gives_all():
    assert len(ask({**RANK, "top_k": 2**70}).json()["ranking"]) == 3


@pytest.mark.parametrize("item", ["new", 7, 2**64, -(2**63) - 1, 2**200, "é\u2028", ""])
def test_an_items_id_is_echoed_as_it_was_sent(item: Any):
    for candidate in (item, {"item_id": item}):
        answer = ask({**RANK, "candidates": [candidate], "top_k": 1})
        assert answer.status == 200
        # Not answer.json(): its reader turns integers beyond 64 bits into floats.
        (one,) = json.loads(answer.body)["ranking"]
        assert one["item_id"] == item
        assert type(one["item_id"]) is type(item)


def test_candidates_that_the_catalog_lacks_are_scored_and_counted():
    answer = ask({**RANK, "candidates": ["new", {"item_id": "newer", "price": 19}, "i0"]}).json()
    assert answer["unknown_items"] == 2
    assert answer["predictions"][1] == pytest.approx(0.9, abs=1e-6)


def test_context_may_be_absent_or_null_and_any_key_of_user_too():
    for change in ({"user": {}}, {"context": None}, {"context": {}, "top_k": None, "unit_id": None}):
        assert ask({**RANK, **change}).status == 200


def test_explain_false_is_the_default_and_taken():
    assert ask({**RANK, "explain": False}).status == 200


def test_the_assignment_tells_experiment_reason_epoch_and_share():
    answer = ask({"instances": [ROW]}, scores=BOTH, weights={"v1": 90, "v2": 10}, document={"experiment": "feed-7"})
    assert answer.json()["assignment"]["experiment"] == "feed-7"
    assert answer.json()["assignment"]["reason"] == "split"
    assert answer.json()["assignment"]["epoch"] == 7
    assert answer.json()["assignment"]["propensity"] == {"v1": 0.9, "v2": 0.1}[answer.json()["model_version"]]
    assert answer.headers["x-model-version"] == answer.json()["model_version"]


@pytest.mark.parametrize(
    ("body", "options", "reason"),
    [
        ({"instances": [ROW], "version": "v2"}, {}, "override"),
        ({"instances": [{"age": 3}]}, {}, "no_unit"),
        ({"instances": [ROW], "unit_id": ""}, {}, "no_unit"),
        ({"instances": [{**ROW, "user_id": None}]}, {}, "no_unit"),
        ({"instances": [ROW]}, {"document": {"coverage": 0.0}}, "default"),
    ],
)
def test_propensity_is_null_where_the_split_did_not_choose(body: Any, options: Any, reason: str):
    answer = ask(body, scores=BOTH, weights={"v1": 1, "v2": 1}, **options).json()
    assert answer["assignment"]["reason"] == reason
    assert answer["assignment"]["propensity"] is None


# Of these, the split of v1 and v2 by halves gives "1" to one and "2" to the other (see the first test below).
UNITS = [
    ({"instances": [{"user_id": "1"}]}, {}, "1"),
    ({"instances": [{"user_id": 1}]}, {}, "1"),
    ({"instances": [{"user_id": "2"}]}, {}, "2"),
    ({"instances": [{"user_id": "1"}, {"user_id": "2"}]}, {}, "1"),
    ({"instances": [{"user_id": "1"}], "unit_id": 2}, {}, "2"),
    ({"instances": [{"user_id": "1"}]}, {"X-Unit-Id": "2"}, "2"),
    ({"instances": [{}], "unit_id": "1"}, {"X-Unit-Id": "2"}, "1"),
    ({"instances": [{}], "unit_id": None}, {"X-Unit-Id": "2"}, "2"),
    ({"user": {"user_id": 2}, "candidates": ["i1"]}, {}, "2"),
    ({"user": {"user_id": 1}, "candidates": ["i1"], "unit_id": "2"}, {}, "2"),
]


def halves(unit: str) -> str:
    return Split("default", (("v1", 1.0), ("v2", 1.0)), 1.0, "v1").assign(unit).version


def test_the_two_units_of_these_tests_have_different_versions():
    assert halves("1") != halves("2")


@pytest.mark.parametrize(("body", "headers", "unit"), UNITS)
def test_the_unit_is_the_bodys_then_the_headers_then_the_unit_feature(body: Any, headers: Any, unit: str):
    answer = ask(body, headers, scores=BOTH, weights={"v1": 1, "v2": 1}).json()
    assert answer["assignment"]["reason"] == "split"
    assert answer["model_version"] == halves(unit)


def test_a_unit_in_a_header_hashes_as_the_same_text_in_a_body():
    for unit in ("用户1", "ünït", "x y"):
        answer = ask({"instances": [{}]}, {"X-Unit-Id": unit}, scores=BOTH, weights={"v1": 1, "v2": 1}).json()
        assert answer["model_version"] == halves(unit)


def test_an_override_wins_over_the_split_and_the_body_over_the_header():
    for body, headers in (
        ({"instances": [ROW], "version": "v2"}, {}),
        ({"instances": [ROW]}, {"X-Model-Version": "v2"}),
        ({"instances": [ROW], "version": "v2"}, {"X-Model-Version": "v1"}),
    ):
        assert ask(body, headers, scores=BOTH).json()["model_version"] == "v2"


@pytest.mark.parametrize("sent", ["abc-1", "a b", "~" * 128])
def test_a_request_id_is_echoed(sent: str):
    assert ask({"instances": [ROW]}, {"X-Request-Id": sent}).headers["x-request-id"] == sent


@pytest.mark.parametrize("sent", ["", "~" * 129, "a\tb", "a\x7fb", "é", "a\x1bb"])
def test_a_request_id_that_is_long_or_not_printable_is_replaced(sent: str):
    made = ask({"instances": [ROW]}, {"X-Request-Id": sent}).headers["x-request-id"]
    assert len(made) == 32


def test_ids_of_predictions_and_made_ids_of_requests_are_unique():
    async def main() -> list[tuple[str, str]]:
        async with desk() as here:
            answers = [await here.post({"instances": [ROW]}) for _ in range(100)]
            return [(one.json()["prediction_id"], one.headers["x-request-id"]) for one in answers]

    assert len({part for pair in asyncio.run(main()) for part in pair}) == 200


def test_server_timing_tells_parse_queue_and_model_in_milliseconds():
    def slow(encoded):
        time.sleep(0.02)
        return by_price(encoded)

    header = ask({"instances": [ROW]}, scores={"v1": slow}).headers["server-timing"]
    parts = dict(part.split(";dur=") for part in header.split(", "))
    assert list(parts) == ["parse", "queue", "model"]
    assert 20 <= float(parts["model"]) < 500
    assert float(parts["parse"]) < 20


def test_of_a_repeated_key_the_last_counts_for_assignment_and_for_scoring():
    raw = b'{"instances":[{"user_id":"1","price":0,"user_id":"2","price":19}]}'
    answer = ask(raw, scores=BOTH, weights={"v1": 1, "v2": 1}).json()
    assert answer["model_version"] == halves("2")
    assert answer["predictions"] == pytest.approx([0.9], abs=1e-6)


def test_ba04_scores_in_one_batch_are_the_scores_alone():
    prices = np.random.default_rng(0).uniform(-1e30, 1e30, 200).tolist() + list(range(20))

    async def main() -> None:
        async with desk(budget_ms=60_000) as here:
            alone = [(await here.post({"instances": [{"price": price}]})).json()["predictions"][0] for price in prices]
            here.engines["v1"].open.clear()
            tasks = [asyncio.create_task(here.post({"instances": [{"price": price}]})) for price in prices]
            await asyncio.sleep(0.05)
            here.engines["v1"].open.set()
            together = [answer.json()["predictions"][0] for answer in await asyncio.gather(*tasks)]
            assert max(here.engines["v1"].calls) > 100, "nothing was batched"
            assert together == pytest.approx(alone, abs=1e-5)

    asyncio.run(main())


def test_large_bodies_are_parsed_off_the_event_loop_with_the_same_answer():
    body = {"instances": [{**ROW, "price": price % 20, "genres": ["a" * 40]} for price in range(2000)]}
    answer = ask(body)
    assert answer.status == 200
    assert answer.json()["predictions"][19] == pytest.approx(0.9, abs=1e-6)
