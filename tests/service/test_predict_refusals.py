"""POST /predict: the contract's table of bad input, row by row."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.api.body import decode
from service.errors import NotJson
from service.scoring.known import KnownNames
from service.scoring.schema import FeatureSchema
from tests.service.desk import ask, by_price, desk, encoder, encoder_without_items, post

ROW = {"user_id": "u1", "age": 30, "price": 3, "genres": ["a"]}
ROWS = {"instances": [ROW]}
RANK = {"user": {"user_id": "u1", "age": 30}, "candidates": ["i0", "i19"]}

OTHER = FeatureSchema.parse(
    [
        {"name": "height", "kind": "numeric", "side": "user"},
        {"name": "page", "kind": "categorical", "side": "context"},
        {"name": "price", "kind": "numeric", "side": "context"},
    ],
    unit="visitor",
    item="sku",
)
KNOWN = KnownNames.of([encoder().schema, OTHER])


def in_row(**values: Any) -> dict[str, Any]:
    return {"instances": [{**ROW, **values}]}


NOT_JSON = {
    "an empty body": b"",
    "a word": b"hello",
    "half a body": b'{"instances":[{"age":3}]',
    "something after the end": b'{"instances":[{"age":3}]}{}',
    "a trailing comma": b'{"instances":[{"age":3},]}',
    "NaN": b'{"instances":[{"age":NaN}]}',
    "Infinity": b'{"instances":[{"age":Infinity}]}',
    "-Infinity": b'{"instances":[{"age":-Infinity}]}',
    "1e400": b'{"instances":[{"age":1e400}]}',
    "a number with leading zeros": b'{"instances":[{"age":007}]}',
    "a lone surrogate": b'{"instances":[{"user_id":"\\ud800 and more"}]}',
    "a control character in a string": b'{"instances":[{"user_id":"\x01"}]}',
    "UTF-16": '{"instances":[{"age":3}]}'.encode("utf-16"),
    "a JSON text in single quotes": b"{'instances':[{}]}",
}
HOSTILE = {
    "a hundred thousand brackets": b"[" * 100_000 + b"]" * 100_000,
    "brackets never closed": b'{"instances":' + b"[" * 100_000,
    "nested objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "invalid UTF-8 in a string": b'{"instances":[{"user_id":"\xff\xfe"}]}',
    "invalid UTF-8 in a key": b'{"instances":[{"\xff":1}]}',
    "an integer of 5000 digits": b'{"instances":[{"user_id":' + b"9" * 5000 + b"}]}",
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps(ROWS).encode(),
}


@pytest.mark.parametrize("raw", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_what_is_not_json_is_400(raw: bytes):
    answer = ask(raw)
    assert answer.status == 400
    assert isinstance(answer.json()["detail"], str)


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_se05_hostile_json_is_400_and_the_next_request_is_fine(raw: bytes):
    async def main() -> tuple[Any, Any]:
        async with desk() as here:
            return await here.post(raw), await here.post(ROWS)

    hostile, next_one = asyncio.run(main())
    assert hostile.status == 400
    assert b"Traceback" not in hostile.body
    assert next_one.status == 200


@given(st.binary(max_size=200))
def test_se05_any_bytes_are_json_or_are_not(raw: bytes):
    try:
        decode(raw)
    except NotJson:
        return
    json.loads(raw)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = ["instances", "user", "context", "candidates", "top_k", "unit_id", "version", "explain", "instance"]
features = st.dictionaries(st.sampled_from(["age", "price", "genres", "user_id", "item_id", "agee"]), json_values)
bodies = st.dictionaries(
    st.sampled_from(KEYS), json_values | features | st.lists(features | json_values, max_size=3), max_size=5
)


@settings(max_examples=150, deadline=None)
@given(bodies)
def test_se05_any_json_gets_an_answer_that_is_strict_json_and_no_500(body: Any):
    answer = ask(body)
    assert answer.status in (200, 404, 422)
    answer.json()


TYPES = {
    "text/plain": 415,
    "application/x-www-form-urlencoded": 415,
    "text/json": 415,
    "application/json; charset=utf-16": 415,
    "application/jsonp": 415,
    "application/json": 200,
    "Application/JSON; charset=UTF-8": 200,
    'application/json; charset="utf-8"': 200,
    "application/vnd.gateway+json": 200,
    "": 200,
}


@pytest.mark.parametrize(("kind", "status"), TYPES.items())
def test_se05_a_content_type_that_is_no_json_is_415(kind: str, status: int):
    assert ask(ROWS, {"Content-Type": kind}).status == status


def test_a_content_type_is_assumed_where_absent():
    assert ask(ROWS, {}).status == 200


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "gzip, identity"])
def test_a_content_encoding_is_415(encoding: str):
    assert ask(ROWS, {"Content-Encoding": encoding}).status == 415


def test_no_content_encoding_by_its_name_is_fine():
    assert ask(ROWS, {"Content-Encoding": "identity"}).status == 200


BODY = ("body",)
WRONG_SHAPES: dict[str, tuple[Any, dict[tuple[Any, ...], str]]] = {
    "a list": ([], {BODY: "dict_type"}),
    "a number": (3, {BODY: "dict_type"}),
    "null": (None, {BODY: "dict_type"}),
    "nothing": ({}, {("body", "instances"): "missing"}),
    "no form, a fault beside": ({"top_k": 0}, {("body", "instances"): "missing"}),
    "no user": ({"candidates": ["i0"]}, {("body", "user"): "missing"}),
    "no candidates": ({"user": {}}, {("body", "candidates"): "missing"}),
    "both forms": (
        {**ROWS, **RANK},
        {("body", "user"): "both_forms", ("body", "candidates"): "both_forms"},
    ),
    "top_k in row form": ({**ROWS, "top_k": 3}, {("body", "top_k"): "both_forms"}),
    "no rows": ({"instances": []}, {("body", "instances"): "too_short"}),
    "no candidate": ({**RANK, "candidates": []}, {("body", "candidates"): "too_short"}),
    "rows are an object": ({"instances": ROW}, {("body", "instances"): "list_type"}),
    "rows are null": ({"instances": None}, {("body", "instances"): "list_type"}),
    "rows are a text": ({"instances": "i1"}, {("body", "instances"): "list_type"}),
    "candidates are a text": ({**RANK, "candidates": "i1"}, {("body", "candidates"): "list_type"}),
    "a row is a list": ({"instances": [ROW, []]}, {("body", "instances", 1): "dict_type"}),
    "a row is null": ({"instances": [None]}, {("body", "instances", 0): "dict_type"}),
    "user is a list": ({**RANK, "user": []}, {("body", "user"): "dict_type"}),
    "user is null": ({**RANK, "user": None}, {("body", "user"): "dict_type"}),
    "context is a text": ({**RANK, "context": "x"}, {("body", "context"): "dict_type"}),
    "a candidate is a float": ({**RANK, "candidates": ["i0", 1.5]}, {("body", "candidates", 1): "item_type"}),
    "a candidate is a boolean": ({**RANK, "candidates": [True]}, {("body", "candidates", 0): "item_type"}),
    "a candidate is null": ({**RANK, "candidates": [None]}, {("body", "candidates", 0): "item_type"}),
    "a candidate without its key": (
        {**RANK, "candidates": [{"price": 3}]},
        {("body", "candidates", 0, "item_id"): "item_key"},
    ),
    "top_k is 0": ({**RANK, "top_k": 0}, {("body", "top_k"): "greater_than_equal"}),
    "top_k is a float": ({**RANK, "top_k": 2.0}, {("body", "top_k"): "int_type"}),
    "top_k is a boolean": ({**RANK, "top_k": True}, {("body", "top_k"): "int_type"}),
    "top_k is a text": ({**RANK, "top_k": "3"}, {("body", "top_k"): "int_type"}),
    "unit_id is a float": ({**ROWS, "unit_id": 1.0}, {("body", "unit_id"): "unit_type"}),
    "unit_id is a boolean": ({**ROWS, "unit_id": True}, {("body", "unit_id"): "unit_type"}),
    "unit_id is a list": ({**ROWS, "unit_id": ["u1"]}, {("body", "unit_id"): "unit_type"}),
    "version is a number": ({**ROWS, "version": 1}, {("body", "version"): "version_name"}),
    "version is a path": ({**ROWS, "version": "../v1"}, {("body", "version"): "version_name"}),
    "version is empty": ({**ROWS, "version": ""}, {("body", "version"): "version_name"}),
    "version is reserved": ({**ROWS, "version": "weights"}, {("body", "version"): "version_name"}),
    "explain, of a version that cannot": ({**ROWS, "explain": True}, {("body", "explain"): "no_explanations"}),
    "explain too much": (
        {"instances": [{}] * 21, "explain": True},
        {("body", "explain"): "too_long"},
    ),
    "explain is a number": ({**ROWS, "explain": 1}, {("body", "explain"): "bool_type"}),
    "a misspelt field": ({**ROWS, "verison": "v1"}, {("body", "verison"): "extra_forbidden"}),
}


@pytest.mark.parametrize(("body", "faults"), WRONG_SHAPES.values(), ids=WRONG_SHAPES.keys())
def test_a_wrong_shape_is_422_with_its_place(body: Any, faults: dict[tuple[Any, ...], str]):
    answer = ask(body)
    assert answer.status == 422
    assert answer.faults == faults
    assert all(set(fault) == {"loc", "msg", "type"} for fault in answer.json()["detail"])


WRONG_VALUES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "a number as text": (in_row(age="3.5"), ("body", "instances", 0, "age")),
    "a number as boolean": (in_row(age=False), ("body", "instances", 0, "age")),
    "a category as boolean": (in_row(user_id=True), ("body", "instances", 0, "user_id")),
    "a category as float": (in_row(user_id=1.0), ("body", "instances", 0, "user_id")),
    "a category as fraction": (in_row(user_id=1.5), ("body", "instances", 0, "user_id")),
    "a text as list": (in_row(genres="abc"), ("body", "instances", 0, "genres")),
    "a user's number as text": ({**RANK, "user": {"age": "12"}}, ("body", "user", "age")),
    "a time in milliseconds": ({**RANK, "context": {"shown_at": 1.7e12}}, ("body", "context", "shown_at")),
    "an override's number as text": (
        {**RANK, "candidates": ["i0", {"item_id": "i1", "price": "9"}]},
        ("body", "candidates", 1, "price"),
    ),
}


@pytest.mark.parametrize(("body", "loc"), WRONG_VALUES.values(), ids=WRONG_VALUES.keys())
def test_pr03_no_value_is_converted_silently(body: Any, loc: tuple[Any, ...]):
    answer = ask(body)
    assert answer.status == 422
    assert list(answer.faults) == [loc]


@pytest.mark.parametrize("number", ["1e39", "-1e39", "1e308"])
def test_pr01_a_number_beyond_float32_is_clipped_to_the_training_range(number: str):
    answer = ask(f'{{"instances":[{{"price":{number}}}]}}'.encode())
    assert answer.status == 200
    assert answer.json()["predictions"] == pytest.approx([0.1 if number[0] == "-" else 0.9], abs=1e-6)


def test_pr01_a_text_that_reads_nan_is_422_and_not_echoed():
    answer = ask(in_row(age="nan-7391"))
    assert answer.status == 422
    assert b"7391" not in answer.body


def test_values_of_the_client_are_never_echoed():
    secret = "hunter2-7391"
    body = {
        "instances": [{"age": secret, "user_id": [secret], "genres": secret}, secret],
        "unit_id": [secret],
        "version": f"/{secret}",
        "top_k": secret,
        "explain": secret,
    }
    assert secret.encode() not in ask(body, {"X-Request-Timeout-Ms": secret}).body


def test_pr05_a_misspelt_feature_is_422_naming_the_nearest():
    answer = ask(in_row(agee=3))
    assert answer.faults == {("body", "instances", 0, "agee"): "unknown_feature"}
    assert "did you mean 'age'?" in answer.json()["detail"][0]["msg"]


def test_pr05_absent_features_are_missing_and_counted():
    async def main() -> dict[str, float]:
        async with desk() as here:
            answer = await here.post({"instances": [{"price": 3}, {"price": 3, "age": None, "genres": []}]})
            assert answer.status == 200
            return here.counts()

    counts = asyncio.run(main())
    assert counts["missing_values_total age v1"] == 2
    assert counts["missing_values_total genres v1"] == 2
    assert "missing_values_total price v1" not in counts


WRONG_SIDES = {
    "an item's in user": ({**RANK, "user": {"genres": ["a"]}}, ("body", "user", "genres")),
    "a user's in context": ({**RANK, "context": {"age": 3}}, ("body", "context", "age")),
    "a user's in a candidate": (
        {**RANK, "candidates": [{"item_id": "i0", "age": 3}]},
        ("body", "candidates", 0, "age"),
    ),
    "the item key in user": ({**RANK, "user": {"item_id": "i0"}}, ("body", "user", "item_id")),
    "the unit in a candidate": (
        {**RANK, "candidates": [{"item_id": "i0", "user_id": "u"}]},
        ("body", "candidates", 0, "user_id"),
    ),
}


@pytest.mark.parametrize(("body", "loc"), WRONG_SIDES.values(), ids=WRONG_SIDES.keys())
def test_a_feature_in_the_wrong_sides_object_is_422(body: Any, loc: tuple[Any, ...]):
    assert ask(body).faults == {loc: "wrong_side"}


def test_names_that_another_version_knows_are_ignored_and_counted():
    async def main() -> dict[str, float]:
        async with desk(known=KNOWN) as here:
            user = {**RANK["user"], "height": 3, "visitor": "x"}
            context, candidates = {"page": "home", "price": 3}, [{"item_id": 1, "sku": 2}]
            body = {"user": user, "context": context, "candidates": candidates}
            assert (await here.post(body)).status == 200
            assert (await here.post(in_row(height=3, page="home"))).status == 200
            return here.counts()

    counts = asyncio.run(main())
    assert {key: counts[key] for key in counts if key.startswith("unknown_values") and "user_id" not in key} == {
        "unknown_values_total height v1": 2,
        "unknown_values_total page v1": 2,
        "unknown_values_total visitor v1": 1,
        "unknown_values_total price v1": 1,
        "unknown_values_total sku v1": 1,
    }


def test_unknown_names_are_counted_where_the_service_ignores_them():
    async def main() -> dict[str, float]:
        async with desk(unknown_features="ignore") as here:
            for n in range(50):
                assert (await here.post(in_row(**{f"made up {n}": 1}))).status == 200
            assert (await here.post({**RANK, "user": {"genres": ["a"]}})).status == 200
            return here.counts()

    counts = asyncio.run(main())
    assert counts["unknown_values_total (unlisted) v1"] == 50
    assert counts["unknown_values_total genres v1"] == 1
    assert not [key for key in counts if "made up" in key]


def test_every_fault_of_a_request_is_listed_whatever_its_kind():
    body = {
        "user": {"age": "x", "agee": 1},
        "context": {"shown_at": True},
        "candidates": [1.5, {"price": 3}, {"item_id": "i0", "price": "x", "age": 3}],
        "top_k": 0,
        "unit_id": 1.5,
        "vresion": "v1",
    }
    assert ask(body, {"X-Request-Timeout-Ms": "soon"}).faults == {
        ("body", "vresion"): "extra_forbidden",
        ("body", "unit_id"): "unit_type",
        ("body", "top_k"): "greater_than_equal",
        ("body", "candidates", 0): "item_type",
        ("header", "x-request-timeout-ms"): "timeout",
        ("body", "user", "agee"): "unknown_feature",
        ("body", "candidates", 2, "age"): "wrong_side",
        ("body", "user", "age"): "number_type",
        ("body", "context", "shown_at"): "datetime_type",
        ("body", "candidates", 1, "item_id"): "item_key",
        ("body", "candidates", 2, "price"): "number_type",
    }


def test_a_unit_that_is_none_is_one_fault_though_it_is_a_feature_too():
    answer = ask({"instances": [{"user_id": 1.5}]})
    assert [fault["loc"] for fault in answer.json()["detail"]] == [["body", "instances", 0, "user_id"]]


@pytest.mark.parametrize(
    "body",
    [
        {"instances": [{"age": "x"}] * 100},
        {"instances": [{f"name {n}": 1 for n in range(500)}] * 10},
        {"instances": ["x"] * 100},
        {f"field {n}": 1 for n in range(100)},
    ],
)
def test_the_first_twenty_faults_are_listed(body: Any):
    assert len(ask(body).json()["detail"]) == 20


def test_a_name_is_repeated_in_short():
    answer = ask(in_row(**{"x" * 100_000: 1}))
    assert answer.status == 422
    assert len(answer.body) < 1000


def test_the_ranking_form_of_a_version_without_an_item_key_is_422():
    known = KnownNames.of([encoder().schema, encoder_without_items().schema])
    answer = ask(RANK, scores={"v1": by_price}, without_items=("v1",), known=known)
    assert answer.faults == {("body", "candidates"): "no_item_key"}


def test_rows_over_the_limit_are_413_in_both_forms():
    assert ask({"instances": [{}] * 11}, max_rows=10).status == 413
    assert ask({**RANK, "candidates": ["i0"] * 11}, max_rows=10).status == 413
    assert ask({**RANK, "candidates": ["i0"] * 10}, max_rows=10).status == 200
    assert "10" in ask({"instances": [{}] * 11}, max_rows=10).json()["detail"]


async def one_mebibyte_desk(chunks: list[bytes], headers: dict[str, str]) -> Any:
    async with desk(max_body_mib=1.0, body_seconds=0.1) as here:
        return await post(here.endpoint, chunks, headers), here.counts()


def test_se04_a_declared_length_over_the_limit_is_413_before_the_body_is_read():
    async def main() -> Any:
        async with desk(max_body_mib=1.0) as here:

            async def receive() -> Any:
                raise AssertionError("the body was read")

            sent: list[Any] = []

            async def send(message: Any) -> None:
                sent.append(message)

            headers = [(b"content-length", str(2**20 + 1).encode())]
            await here.endpoint({"type": "http", "headers": headers}, receive, send)
            return sent[0]["status"]

    assert asyncio.run(main()) == 413


def test_se04_chunks_over_the_limit_are_413_and_no_more_are_read():
    chunk = b" " * 2**18
    answer, counts = asyncio.run(one_mebibyte_desk([chunk] * 5 + [b"never read"], {}))
    assert answer.status == 413
    assert counts["rejected_total body_too_large"] == 1


def test_se04_a_body_of_just_the_limit_in_chunks_is_read():
    raw = json.dumps(ROWS).encode()
    raw += b" " * (2**20 - len(raw))
    answer, _ = asyncio.run(one_mebibyte_desk([raw[: 2**19], raw[2**19 :]], {}))
    assert answer.status == 200


def test_se04_a_trickle_is_408_at_the_time_limit_and_the_connection_is_closed():
    async def main() -> Any:
        async with desk(body_seconds=0.05) as here:

            async def receive() -> Any:
                await asyncio.sleep(0.01)
                return {"type": "http.request", "body": b" ", "more_body": True}

            sent: list[Any] = []

            async def send(message: Any) -> None:
                sent.append(message)

            await here.endpoint({"type": "http", "headers": []}, receive, send)
            return sent[0], here.counts()

    start, counts = asyncio.run(main())
    assert start["status"] == 408
    assert (b"connection", b"close") in start["headers"]
    assert counts["rejected_total slow_body"] == 1


def test_an_override_that_does_not_exist_is_404_and_one_not_loaded_409():
    async def main() -> list[int]:
        async with desk() as here:
            here.versions.others = {"v3": ("loading", None), "v4": ("failed", "secret reason")}
            return [
                (await here.post(ROWS, {"X-Model-Version": version})).status for version in ("v9", "v3", "v4", "v1")
            ]

    assert asyncio.run(main()) == [404, 409, 409, 200]


def test_an_override_is_never_answered_by_another_version():
    assert ask({**ROWS, "version": "v2"}, scores={"v1": by_price}).status == 404


@pytest.mark.parametrize("header", ["x", "-1", "nan", "inf", ""])
def test_a_timeout_that_is_no_number_of_milliseconds_is_422(header: str):
    assert ask(ROWS, {"X-Request-Timeout-Ms": header}).faults == {("header", "x-request-timeout-ms"): "timeout"}


def test_a_client_token_is_asked_for_where_one_is_set():
    async def main() -> list[int]:
        async with desk(client_token="s3cret") as here:
            tokens = ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer s3cret"})
            return [(await here.post(ROWS, headers)).status for headers in tokens]

    assert asyncio.run(main()) == [401, 401, 200]


def test_me05_clients_cannot_invent_series():
    async def main() -> tuple[int, int]:
        async with desk(unknown_features="ignore") as here:
            await here.post(ROWS)
            before = here.metrics.render(here.view.document)[0].count(b"\n")
            for n in range(200):
                await here.post({**in_row(user_id=f"user {n}", **{f"feature {n}": 1}), "version": f"v{n + 10}"})
                await here.post(in_row(user_id=f"user {n}", genres=[f"genre {n}"], **{f"feature {n}": 1}))
                await here.post({**RANK, "candidates": [f"item {n}"], f"field {n}": 1})
            return before, here.metrics.render(here.view.document)[0].count(b"\n")

    before, after = asyncio.run(main())
    assert after == before
