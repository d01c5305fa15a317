"""More than there is time for: refused at once, told when to come back, counted, and nothing else is harmed."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.server import Service, serving

BODY = json.dumps({"instances": [{"age": age % 90} for age in range(400)], "unit_id": "u1"}).encode()
CONNECTIONS, REQUESTS = 96, 15


@pytest.fixture(scope="module")
def narrow(tiny_artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One worker whose time budget is a few requests."""
    options = ("--workers", "1", "--load", "all", "--weights", "v3=1", "--budget-ms", "8")
    with serving(tiny_artifacts, tmp_path_factory.mktemp("service"), *options) as running:
        yield running


def request(number: int) -> bytes:
    head = f"POST /predict HTTP/1.1\r\nHost: t\r\nX-Request-Id: r{number}\r\nContent-Length: {len(BODY)}\r\n\r\n"
    return head.encode() + BODY


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes, bytes]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None
    return int(head.split()[1]), head, await reader.readexactly(int(length[1]))


async def client(port: int, first: int, answers: list[tuple[int, bytes, bytes]]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(first, first + REQUESTS):
        writer.write(request(number))
        status, head, body = await answer(reader)
        assert f"x-request-id: r{number}\r\n".encode() in head
        answers.append((status, head, body))
    writer.close()
    await writer.wait_closed()


async def rush(port: int) -> list[tuple[int, bytes, bytes]]:
    answers: list[tuple[int, bytes, bytes]] = []
    await asyncio.gather(*(client(port, n * REQUESTS, answers) for n in range(CONNECTIONS)))
    return answers


def refusals(service: Service) -> float:
    found = service.metrics()
    return sum(value for name, value in found.items() if name.startswith('twinrank_requests_total{code="429"'))


def test_what_there_is_no_time_for_is_refused_and_the_rest_answered(narrow: Service) -> None:
    before = refusals(narrow)
    answers = asyncio.run(rush(narrow.port))
    counts = Counter(status for status, _, _ in answers)
    assert set(counts) == {200, 429}
    assert len(answers) == CONNECTIONS * REQUESTS
    assert refusals(narrow) - before == counts[429]
    for status, head, body in answers:
        if status == 429:
            assert int(re.search(rb"retry-after: (\d+)", head)[1]) >= 1  # type: ignore[index]  # it is there
            assert json.loads(body).keys() == {"detail"}
        else:
            assert len(json.loads(body)["predictions"]) == 400


def test_after_a_rush_everything_is_taken_again(narrow: Service) -> None:
    asyncio.run(rush(narrow.port))
    assert narrow.predict(json.loads(BODY)).status_code == 200


def test_a_request_inside_of_a_body_is_never_answered(narrow: Service) -> None:
    """The body of a request that was answered early is not a request, whatever it holds."""

    async def main() -> int:
        noise = asyncio.create_task(rush(narrow.port))
        await asyncio.sleep(0.2)
        seen = 0
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", narrow.port)
            inner = request(1)
            writer.write(b"POST /predict HTTP/1.1\r\nHost: t\r\nContent-Encoding: gzip\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n" % (len(inner) * 2))
            await answer(reader)
            writer.write(inner)
            await writer.drain()
            with suppress(TimeoutError, ConnectionResetError):
                seen += bool(await asyncio.wait_for(reader.read(1), 0.05))
            writer.close()
        await noise
        return seen

    assert asyncio.run(main()) == 0
