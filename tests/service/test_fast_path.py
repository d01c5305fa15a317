"""The usual request, taken whole and answered without a task: as the long way does, and in order on its connection."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from service.workers.protocol import Protocol
from tests.service.desk import Desk, desk

JSON = {b"content-type": b"application/json"}
RANKING = {"user": {"age": 30}, "candidates": ["i1", "i2", "i1"], "unit_id": "u1"}


async def taken(here: Desk, body: object, headers: dict[bytes, bytes] | None = None) -> Any:
    """The reply of the fast path; None where it did not take the request."""
    replied = asyncio.get_running_loop().create_future()
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    waiting = here.endpoint.take({**JSON, **(headers or {})}, raw, replied.set_result)
    return None if waiting is None else await replied


def run(body: object, headers: dict[bytes, bytes] | None = None, **options: Any) -> Any:
    async def main() -> Any:
        async with desk(**options) as here:
            return await taken(here, body, headers), here.counts()

    return asyncio.run(main())


def without_chance(body: bytes) -> Any:
    return {**json.loads(body), "prediction_id": None}


@pytest.mark.parametrize("body", [RANKING, {**RANKING, "unit_id": 7, "top_k": 2}])
def test_the_answer_is_that_of_the_long_way(body):
    async def main():
        async with desk() as here:
            mine = await taken(here, body, {b"x-request-id": b"r-1"})
            other = await here.post(body, {"X-Request-Id": "r-1", "Content-Type": "application/json"})
            return mine, other

    mine, other = asyncio.run(main())
    assert mine.status == other.status == 200
    assert without_chance(mine.body) == without_chance(other.body)
    assert [name.decode() for name, _ in mine.headers] == list(other.headers)


@pytest.mark.parametrize("body", [RANKING, {**RANKING, "unit_id": 7, "top_k": 2}])
def test_the_counts_are_those_of_the_long_way(body):
    async def long_way():
        async with desk() as here:
            await here.post(body)
            return here.counts()

    def steady(counts):
        return {key: value for key, value in counts.items() if "seconds" not in key and "resident" not in key}

    _, counts = run(body)
    assert steady(counts) == steady(asyncio.run(long_way()))


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({**RANKING, "explain": True}, {}),
        ({**RANKING, "version": "v1"}, {}),
        ({**RANKING, "agee": 1}, {}),
        ({**RANKING, "candidates": []}, {}),
        (b"{not json", {}),
        (b"[" * 5000, {}),
        (b" " * 70_000, {}),
        (RANKING, {b"x-model-version": b"v1"}),
        (RANKING, {b"content-type": b"text/plain"}),
        (RANKING, {b"content-encoding": b"gzip"}),
        (RANKING, {b"x-request-timeout-ms": b"soon"}),
    ],
)
def test_what_is_not_usual_is_left_alone_and_counted_nowhere(body, headers):
    reply, counts = run(body, headers)
    assert reply is None
    assert not any(key.startswith(("requests", "in_flight", "rejected", "assignments")) for key in counts)


def test_a_missing_or_wrong_client_token_is_for_the_long_way():
    assert run(RANKING, client_token="secret")[0] is None
    assert run(RANKING, {b"authorization": b"Bearer other"}, client_token="secret")[0] is None
    assert run(RANKING, {b"authorization": b"Bearer secret"}, client_token="secret")[0].status == 200


def test_a_deadline_that_passes_in_the_queue_is_504():
    async def main():
        async with desk() as here:
            here.engines["v1"].open.clear()
            reply = await taken(here, RANKING, {b"x-request-timeout-ms": b"20"})
            return reply, here.counts()

    reply, counts = asyncio.run(main())
    assert reply.status == 504
    assert counts["rejected_total deadline"] == 1


def test_a_model_that_fails_is_500_for_its_own_callers_alone():
    def broken(_):
        raise RuntimeError("no luck")

    reply, counts = run(RANKING, scores={"v1": broken})
    assert reply.status == 500
    assert b"no luck" not in reply.body
    assert counts["requests_total 500 v1"] == 1


def test_an_answer_that_cannot_be_handed_over_leaves_its_neighbours_theirs():
    async def main():
        async with desk() as here:
            here.engines["v1"].open.clear()
            raw = json.dumps(RANKING).encode()
            others = [asyncio.create_task(taken(here, RANKING)) for _ in range(2)]
            here.endpoint.take(JSON, raw, lambda _: 1 / 0)
            here.engines["v1"].open.set()
            return [reply.status for reply in await asyncio.gather(*others)], here.endpoint.waiting

    assert asyncio.run(main()) == ([200, 200], 0)


class Wire(asyncio.Transport):
    """A connection's other end."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.closed = self.paused = False

    def write(self, data):
        self.sent.append(bytes(data))

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        self.paused = True

    def resume_reading(self):
        self.paused = False

    def get_extra_info(self, name, default=None):
        return default


@asynccontextmanager
async def connected():
    """(desk, protocol, wire) of one connection to the endpoint."""
    async with desk() as here:
        config = uvicorn.Config(here.endpoint, http=Protocol, ws="none", lifespan="off", log_config=None)
        config.load()
        state = ServerState()
        state.default_headers = [(b"server", b"here")]
        protocol, wire = Protocol(config=config, server_state=state, app_state={"predict": here.endpoint}), Wire()
        protocol.connection_made(wire)
        yield here, protocol, wire
        if not wire.closed:
            protocol.connection_lost(None)


def request(body: object = RANKING, line: str = "POST /predict HTTP/1.1") -> bytes:
    raw = json.dumps(body).encode()
    return f"{line}\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw


async def until(condition) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for is a list of bytes
            await asyncio.sleep(0.001)


def test_a_connection_goes_on_after_an_answer():
    async def main():
        async with connected() as (_, protocol, wire):
            for count in (1, 2):
                protocol.data_received(request())
                await until(lambda count=count: len(wire.sent) == count)
            return wire.sent, wire.closed

    sent, closed = asyncio.run(main())
    assert [one.startswith(b"HTTP/1.1 200 OK\r\nserver: here\r\n") for one in sent] == [True, True]
    assert not closed


@pytest.mark.parametrize("first", [request(), request({**RANKING, "explain": False, "version": "v1"})])
def test_requests_that_do_not_wait_are_answered_in_turn(first):
    second = request({**RANKING, "unit_id": "second"})

    async def main():
        async with connected() as (here, protocol, wire):
            here.engines["v1"].open.clear()
            protocol.data_received(first)
            await asyncio.sleep(0)
            protocol.data_received(second[:50])
            protocol.data_received(second[50:] + request({"instances": 1}))
            await asyncio.sleep(0)
            here.engines["v1"].open.set()
            await until(lambda: len(wire.sent) == 3)
            return wire.sent, wire.paused

    sent, paused = asyncio.run(main())
    assert [one.split(b" ", 2)[1] for one in sent] == [b"200", b"200", b"422"]
    assert not paused


def test_a_client_that_left_is_counted_as_gone():
    async def main():
        async with connected() as (here, protocol, wire):
            here.engines["v1"].open.clear()
            protocol.data_received(request())
            wire.close()
            protocol.connection_lost(None)
            return wire.sent, here.counts(), here.endpoint.waiting

    sent, counts, waiting = asyncio.run(main())
    assert sent == []
    assert counts["requests_total 499 v1"] == counts["rejected_total abandoned"] == 1
    assert waiting == 0


def test_bodies_do_not_count_as_the_head_that_came_behind_them():
    async def main():
        async with connected() as (_, protocol, wire):
            large = request({**RANKING, "unit_id": "u" * 50_000})
            protocol.data_received(large + large + large[:20])
            protocol.data_received(large[20:])
            await until(lambda: len(wire.sent) == 3 or wire.closed)
            return [one.split(b" ", 2)[1] for one in wire.sent]

    assert asyncio.run(main()) == [b"200", b"200", b"200"]


def test_a_server_that_ends_answers_what_it_took_and_closes():
    async def main():
        async with connected() as (here, protocol, wire):
            here.engines["v1"].open.clear()
            protocol.data_received(request())
            protocol.shutdown()
            closed_early = wire.closed
            here.engines["v1"].open.set()
            await until(lambda: wire.closed)
            return closed_early, wire.sent

    closed_early, sent = asyncio.run(main())
    assert not closed_early
    assert sent[0].startswith(b"HTTP/1.1 200")
    assert b"\r\nconnection: close\r\n" in sent[0]


def test_a_connection_between_two_requests_is_closed_when_the_server_ends():
    async def main():
        async with connected() as (_, protocol, wire):
            protocol.data_received(request())
            await until(lambda: wire.sent)
            protocol.shutdown()
            return wire.closed

    assert asyncio.run(main())
