"""Field cases of hostile and mistaken requests, on the wire of a real service."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import httpx
import psutil
import pytest

from tests.e2e.server import Service

JSON = {"content-type": "application/json"}
ROW = {"instances": [{"user_id": "u1", "age": 33}]}


def post(service: Service, content: bytes, **headers: str) -> httpx.Response:
    return httpx.post(service.url + "/predict", content=content, headers={**JSON, **headers}, timeout=30)


def strict(response: httpx.Response) -> Any:
    return json.loads(response.content, parse_constant=lambda name: pytest.fail(f"{name} in the body"))


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", '"nan"', "1e400"])
def test_pr01_a_number_that_is_not_finite_is_refused_and_never_echoed(service: Service, literal: str) -> None:
    response = post(service, f'{{"instances": [{{"age": {literal}}}]}}'.encode())
    assert response.status_code in (400, 422)
    assert strict(response)["detail"]
    assert "nan" not in response.text.lower()


@pytest.mark.parametrize("literal", ["1e39", "-1e39"])
def test_pr01_a_number_beyond_float32_is_clipped_where_the_scaler_clips(service: Service, literal: str) -> None:
    assert post(service, f'{{"instances": [{{"age": {literal}}}]}}'.encode()).status_code == 200


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({"instances": [{"age": False}]}, ["instances", 0, "age"]),
        ({"instances": [{"age": "3.5"}]}, ["instances", 0, "age"]),
        ({"instances": [{"user_id": True}]}, ["instances", 0, "user_id"]),
        ({"instances": [{"user_id": 1.0}]}, ["instances", 0, "user_id"]),
        ({"instances": [{"user_id": 1.5}]}, ["instances", 0, "user_id"]),
        ({"user": {}, "candidates": "i1"}, ["candidates"]),
        ({"instances": [{"genres": "abc"}]}, ["instances", 0, "genres"]),
    ],
)
def test_pr03_no_type_is_converted_in_silence(service: Service, body: Any, loc: list[Any]) -> None:
    response = service.predict(body)
    assert response.status_code == 422
    assert loc in [fault["loc"][-len(loc) :] for fault in response.json()["detail"]]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"instances": [{"agee": 3}]}, "age"),
        ({"instances": [{"age": 3, "colour": "red"}]}, "colour"),
        ({"user": {"agee": 3}, "candidates": ["i1"]}, "age"),
        ({**ROW, "verzion": "v1"}, "version"),
    ],
)
def test_pr05_a_misspelt_name_is_refused_with_the_nearest_one(service: Service, body: Any, named: str) -> None:
    response = service.predict(body)
    assert response.status_code == 422
    assert named in response.text


def test_pr05_absent_values_take_the_recorded_fill_and_are_counted(service: Service) -> None:
    def missing() -> float:
        found = service.metrics()
        return sum(
            value for key, value in found.items() if key.startswith('twinrank_missing_values_total{feature="age"')
        )

    before = missing()
    assert service.predict({"instances": [{}, {"age": None}, {"age": 5}]}).status_code == 200
    assert missing() - before == 2


def test_en04_unseen_values_are_counted_exactly(service: Service) -> None:
    def unknown() -> float:
        found = service.metrics()
        return sum(v for key, v in found.items() if key.startswith('twinrank_unknown_values_total{feature="user_id"'))

    before = unknown()
    scores = [
        service.predict({"instances": [{"user_id": user}], "version": "v3"}).json()["predictions"]
        for user in ("new-A", "new-B", "u1")
    ]
    assert scores[0] == scores[1] != scores[2]
    assert unknown() - before == 2


def raw(service: Service, payload: bytes, *, seconds: float = 5) -> bytes:
    with socket.create_connection(("127.0.0.1", service.port), timeout=seconds) as connection:
        connection.sendall(payload)
        try:
            return connection.recv(65536)
        except TimeoutError:
            return b""


def test_se04_a_declared_length_over_the_limit_is_refused_before_the_body(service: Service) -> None:
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {2**33}\r\n\r\n"
    assert b" 413 " in raw(service, head.encode()).split(b"\r\n")[0]


def test_se04_a_chunked_body_over_the_limit_is_refused_and_memory_stays(service: Service) -> None:
    def memory() -> int:
        return sum(worker.memory_info().rss for worker in service.workers())

    before = memory()
    for _ in range(5):
        try:
            response = httpx.post(
                service.url + "/predict", content=(b" " * 2**20 for _ in range(64)), headers=JSON, timeout=30
            )
            assert response.status_code == 413
        except httpx.TransportError:
            pass  # closed before the client had sent it all
    assert memory() - before < 64 * 2**20
    assert service.predict(ROW).status_code == 200


def test_se04_a_million_rows_within_the_limit_are_too_many(service: Service) -> None:
    response = post(service, b'{"instances": [' + b",".join([b"{}"] * 1_000_000) + b"]}")
    assert response.status_code == 413
    assert "4096" in response.text


def test_se04_others_are_served_while_a_body_trickles(service: Service) -> None:
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", service.port), timeout=40) as slow:
        slow.sendall(head)
        started = time.monotonic()
        assert all(service.predict(ROW).status_code == 200 for _ in range(20))
        answer = slow.recv(4096)
        assert time.monotonic() - started < 30
        assert answer == b"" or b" 408 " in answer.split(b"\r\n")[0]


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"instances": [{"user_id": "\xc3\x28"}]}',
        b'{"instances": [{"age": ' + b"9" * 5000 + b"}]}",
        b'{"instances": [{"user_id": ' + b"9" * 5000 + b"}]}",
        b"",
        b"\xef\xbb\xbf" + json.dumps(ROW).encode(),
        b'{"instances": [{"user_id": "\\ud800"}]}',
    ],
    ids=["brackets", "braces", "not UTF-8", "long number", "long id", "empty", "byte order mark", "half a surrogate"],
)
def test_se05_hostile_json_is_answered_at_once_and_the_next_request_is_fine(service: Service, content: bytes) -> None:
    workers = {worker.pid for worker in service.workers()}
    started = time.monotonic()
    response = post(service, content)
    assert time.monotonic() - started < 1
    assert response.status_code in (200, 400, 415, 422)
    assert "Traceback" not in response.text
    assert service.predict(ROW).status_code == 200
    assert {worker.pid for worker in service.workers() if worker.status() != psutil.STATUS_ZOMBIE} == workers
