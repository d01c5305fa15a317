"""The usual request in row form, and what is left to the whole parser."""

import json

import numpy as np
import pytest

from service.api.glance import glance
from service.scoring.predictor import RankRequest, RowRequest
from service.scoring.reader import ReadKeys, is_compiled
from service.traffic import Split

SPLIT = Split("home", (("v1", 0.5), ("v2", 0.5)), 1.0, "v1")


KEYS = ReadKeys(np.zeros(0, np.uint64), True)


class Reading:
    """A version that reads everything."""

    def read_rows(self, data, most, decode):
        return RowRequest(decode())

    def read_user(self, user, context):
        return None

    def read_candidates(self, data, most, decode):
        return decode(), KEYS


def ask(body, headers=None, version=None):
    return glance(
        json.dumps(body).encode(), headers or {}, SPLIT, lambda _: version or Reading(), lambda: ["user_id"], 10
    )


def test_the_usual_request_is_assigned_and_read():
    asked = ask({"instances": [{"age": 3}], "unit_id": 42})
    assert (asked.has_unit, asked.unit) == (True, "42")
    assert asked.assigned == SPLIT.assign("42")
    assert list(asked.request.instances) == [{"age": 3}]


def test_the_usual_ranking_is_assigned_and_read():
    asked = ask({"user": {"age": 3}, "candidates": [5, 6], "unit_id": "u", "top_k": 1, "context": {"hour": 4}})
    assert asked.assigned == SPLIT.assign("u")
    assert asked.request == RankRequest({"age": 3}, [5, 6], {"hour": 4}, keys=KEYS)
    assert asked.top_k == 1


@pytest.mark.parametrize(
    "body",
    [
        {"instances": [{}]},
        {"instances": [{}], "unit_id": ""},
        {"instances": [{}], "unit_id": None},
        {"instances": [{}], "unit_id": True},
        {"instances": [{}], "unit_id": 1.5},
        {"instances": [{}], "unit_id": "u", "explain": True},
        {"instances": [{}], "unit_id": "u", "version": "v1"},
        {"instances": [{}], "unit_id": "u", "user": {}},
        {"instances": [{}], "unit_id": "u", "top_k": 1},
        {"instances": [{}], "unit_id": "u", "context": {}},
        {"instances": [{}], "unit_id": "u", "candidates": [1]},
        {"user": {}, "candidates": [1], "unit_id": "u", "top_k": 0},
        {"user": {}, "candidates": [1], "unit_id": "u", "top_k": "1"},
        {"user": {}, "candidates": [1], "unit_id": "u", "explain": True},
        {"user": [], "candidates": [1], "unit_id": "u"},
        {"user": None, "candidates": [1], "unit_id": "u"},
        {"user": {}, "context": [], "candidates": [1], "unit_id": "u"},
        {"user": {}, "candidates": [1]},
        {"unit_id": "u"},
        [],
    ],
)
def test_everything_else_is_left_to_the_parser(body):
    assert ask(body) is None


def test_a_user_says_itself_which_unit_it_is():
    assert ask({"user": {"user_id": 42}, "candidates": [1]}).unit == "42"


@pytest.mark.parametrize("value", [None, "", True, 1.5, [1]])
def test_a_user_that_names_no_unit_is_left_to_the_parser(value):
    assert ask({"user": {"user_id": value}, "candidates": [1]}) is None


def test_a_unit_by_header_is_left_to_the_parser():
    assert ask({"user": {"user_id": 42}, "candidates": [1]}, {b"x-unit-id": b"u"}) is None


def test_a_version_asked_for_by_header_is_left_to_the_parser():
    assert ask({"instances": [{}], "unit_id": "u"}, {b"x-model-version": b"v1"}) is None


def test_what_is_no_json_is_left_to_the_parser():
    assert (
        glance(b'{"instances": [{}], "unit_id": "u"', {}, SPLIT, lambda _: Reading(), lambda: ["user_id"], 10) is None
    )


@pytest.mark.skipif(not is_compiled(), reason="the reader was not compiled here")
def test_scores_are_those_of_the_whole_parser(artifacts, tmp_path):
    from tests.service.workplace import with_two_versions

    async def check(one):
        rows = [{"age": 30}, {"age": 31.5}, {}]
        glanced = (await one.client.post("/predict", json={"instances": rows, "unit_id": "u1"})).json()
        parsed = (await one.client.post("/predict", json={"instances": rows}, headers={"X-Unit-Id": "u1"})).json()
        assert glanced["assignment"] == parsed["assignment"]
        assert glanced["predictions"] == parsed["predictions"]

    with_two_versions(check)(artifacts, f"sqlite:///{tmp_path}/state.db")


@pytest.mark.skipif(not is_compiled(), reason="the reader was not compiled here")
@pytest.mark.parametrize("candidates", [["i1", "i2", "i1"], ["i1", "not there"], ["i1", {"item_id": "i2"}], [""], [7]])
def test_a_ranking_is_answered_as_by_the_whole_parser(artifacts, tmp_path, candidates):
    from tests.service.workplace import with_two_versions

    async def check(one):
        body = {"user": {"age": 30}, "candidates": candidates, "top_k": 2}
        glanced = await one.client.post("/predict", json={**body, "unit_id": "u1"})
        parsed = await one.client.post("/predict", json=body, headers={"X-Unit-Id": "u1"})
        assert glanced.status_code == parsed.status_code
        for key in ("assignment", "ranking", "unknown_items", "detail"):
            assert glanced.json().get(key) == parsed.json().get(key)

    with_two_versions(check)(artifacts, f"sqlite:///{tmp_path}/state.db")
