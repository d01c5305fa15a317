"""The table of errors, and what is never in a body."""

import asyncio

import httpx
import orjson
import pytest
from fastapi import FastAPI

from service import errors
from service.batching import BatchFailed, DeadlinePassed, Draining, QueueFull
from service.changes import Conflict, Unknown
from service.errors import install, problem, request_id
from service.registry import LoadError
from service.scorer import NonFiniteScore, ScoringFailed
from service.scoring.values import EncodeError, Fault
from service.state import StateError

STATUS = [
    (errors.NotJson("x"), 400),
    (errors.Unauthorised("x"), 401),
    (errors.Forbidden("x"), 403),
    (errors.UnknownVersion("x"), 404),
    (Unknown("x"), 404),
    (errors.SlowBody("x"), 408),
    (errors.VersionNotLoaded("x"), 409),
    (Conflict("x"), 409),
    (errors.TooLarge("x"), 413),
    (errors.TooManyRows("x"), 413),
    (errors.WrongType("x"), 415),
    (LoadError("x"), 422),
    (EncodeError([]), 422),
    (QueueFull("x"), 429),
    (BatchFailed("x"), 500),
    (ScoringFailed("x"), 500),
    (NonFiniteScore("x"), 500),
    (ZeroDivisionError("x"), 500),
    (Draining("x"), 503),
    (errors.NotReady("x"), 503),
    (StateError("x"), 503),
    (DeadlinePassed("x"), 504),
]


@pytest.mark.parametrize(("error", "status"), STATUS, ids=[type(error).__name__ for error, _ in STATUS])
def test_each_exception_has_its_status(error: Exception, status: int):
    found = problem(error, "id")
    assert found.status == status
    assert isinstance(orjson.loads(found.body)["detail"], str | list)


@pytest.mark.parametrize("status", [429, 503])
def test_what_may_be_tried_again_says_when(status: int):
    answers = [problem(error, "id") for error, one in STATUS if one == status]
    assert all(int(dict(answer.headers)["Retry-After"]) >= 1 for answer in answers)


def test_what_the_server_did_wrong_carries_the_request_id_and_no_message_of_its_cause():
    for error, status in STATUS:
        body = orjson.loads(problem(error, "look-me-up").body)
        assert (body.get("request_id") == "look-me-up") == (status >= 500)
    assert b"secret" not in problem(ZeroDivisionError("secret"), "id").body
    assert b"secret" not in problem(BatchFailed("secret"), "id").body
    assert b"secret" not in problem(StateError("secret"), "id").body


def test_a_subclass_is_answered_as_its_nearest_base():
    class Special(QueueFull):
        pass

    assert problem(Special("x"), "id").status == 429


def test_one_fault_a_place_and_twenty_in_all():
    faults = [Fault(("instances", n // 2, "age"), "no number", "number_type") for n in range(100)]
    listed = orjson.loads(problem(EncodeError(faults), "id").body)["detail"]
    assert [fault["loc"][2] for fault in listed] == list(range(20))


def test_a_fault_of_a_header_stands_beside_those_of_the_body():
    faults = [Fault(("header", "x-unit-id"), "m", "t"), Fault(("user", "age"), "m", "t"), Fault((), "m", "t")]
    listed = orjson.loads(problem(EncodeError(faults), "id").body)["detail"]
    assert [fault["loc"] for fault in listed] == [["header", "x-unit-id"], ["body", "user", "age"], ["body"]]


def test_a_request_id_is_kept_or_made():
    assert request_id(b"abc") == "abc"
    assert len(request_id(None)) == 32
    assert request_id(None) != request_id(None)


def answers(path: str, **parameters: str) -> httpx.Response:
    """From an app of FastAPI's own routes that has the table."""
    app = FastAPI()
    install(app)

    @app.get("/full")
    async def full() -> None:
        raise QueueFull("x")

    @app.get("/broken")
    async def broken() -> None:
        raise ZeroDivisionError("secret")

    @app.get("/number")
    async def number(n: int) -> int:
        return n

    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get(path, params=parameters, headers={"X-Request-Id": "look-me-up"})

    return asyncio.run(main())


def test_routes_of_fastapi_answer_by_the_table_too():
    answer = answers("/full")
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["x-request-id"] == "look-me-up"


def test_a_failure_in_a_route_of_fastapi_shows_no_internals():
    answer = answers("/broken")
    assert answer.status_code == 500
    assert answer.json() == {"detail": "the server failed", "request_id": "look-me-up"}


def test_faults_that_fastapi_finds_do_not_echo_the_value():
    answer = answers("/number", n="secret")
    assert answer.status_code == 422
    assert [set(fault) for fault in answer.json()["detail"]] == [{"loc", "msg", "type"}]
    assert "secret" not in answer.text


def test_unknown_paths_and_methods_answer_in_json():
    assert answers("/nowhere").json() == {"detail": "Not Found"}
    assert answers("/nowhere").status_code == 404
