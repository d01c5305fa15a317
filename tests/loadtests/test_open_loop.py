"""The open loop's client, compiled as the benchmark does it, against small servers of the test's own."""

import json
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "loadtests"))
from benchmark import accounts, servers
from benchmark.arriving import Arriving, compile_client
from benchmark.closed import LoadError
from benchmark.schedule import Fates

ANSWER = b"HTTP/1.1 200 OK\r\nServer: small\r\nContent-Length: 4\r\n\r\nfine"
# Given the connection, its number, and the request's number on the whole server.
Answering = Callable[[socket.socket, int, int], None]


@pytest.fixture(scope="module", name="client")
def _client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_client(tmp_path_factory.mktemp("client"))


@contextmanager
def small_server(answer: Answering, body: int) -> Iterator[tuple[str, int]]:
    """A thread a connection; `answer` acts on each whole request, whose bodies are of so many bytes."""
    numbers = iter(range(1_000_000))

    def serve(connection: socket.socket, number: int) -> None:
        with connection, suppress(OSError), connection.makefile("rb") as lines:
            while lines.readline():
                while lines.readline() != b"\r\n":
                    pass
                lines.read(body)
                answer(connection, number, next(numbers))

    def accept() -> None:
        with suppress(OSError):
            for number in range(1_000_000):
                threading.Thread(target=serve, args=(listener.accept()[0], number), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=600) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)


def fire(client: Path, folder: Path, answer: Answering, rate: float, body: bytes = b"{}", **how: Any) -> Fates:
    """A second of even arrivals at a server that answers so."""
    (folder / "body.json").write_bytes(body)
    with ExitStack() as stack:
        address = stack.enter_context(small_server(answer, len(body)))
        arrived = Arriving(client, address, [folder / "body.json"], [(rate, 1)], folder, poisson=False, **how)
        stack.callback(arrived.kill)
        return arrived.fates()


def test_an_open_loop_reaches_a_floor_and_leaves_nothing_behind(client: Path, tmp_path: Path):
    (tmp_path / "body.json").write_text(json.dumps({"instances": [{"C1": 1}]}))
    with servers.floor("parsing", "parsing", tmp_path, workers=1) as floor:
        pids = accounts.tree(floor.pid)
        arrived = Arriving(client, floor.address, [tmp_path / "body.json"], [(200, 0.5)], tmp_path, connections=4)
        found = arrived.fates()
    assert (found.status == 200).all()
    assert len(found.due) == 100
    assert (found.done > found.sent).all()
    assert (found.sent >= found.seen).all()
    assert (found.seen >= found.due).all()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_late_server_is_late_for_all_that_were_due_meanwhile(client: Path, tmp_path: Path):
    def answer(connection: socket.socket, _: int, request: int) -> None:
        if request == 0:
            time.sleep(0.5)
        connection.sendall(ANSWER)

    found = fire(client, tmp_path, answer, 20, connections=1)
    assert (found.status == 200).all()
    assert found.latencies()[:10] == pytest.approx(0.5 - np.arange(10) / 20, abs=0.1)
    assert found.seen == pytest.approx(found.due, abs=0.1)


def test_a_busy_connection_holds_up_no_other(client: Path, tmp_path: Path):
    def answer(connection: socket.socket, number: int, _: int) -> None:
        if number == 0:
            time.sleep(0.5)
        connection.sendall(ANSWER)

    found = fire(client, tmp_path, answer, 40, connections=8)
    assert (found.status == 200).all()
    assert np.sort(found.latencies())[:-3].max() < 0.3


def test_connections_take_turns(client: Path, tmp_path: Path):
    seen = Counter[int]()

    def answer(connection: socket.socket, number: int, _: int) -> None:
        seen[number] += 1
        connection.sendall(ANSWER)

    fire(client, tmp_path, answer, 40, connections=8)
    assert seen == dict.fromkeys(range(8), 5)


def test_a_dropped_connection_loses_its_request_alone(client: Path, tmp_path: Path):
    def answer(connection: socket.socket, _: int, request: int) -> None:
        if request % 3 == 2:
            connection.shutdown(socket.SHUT_RDWR)
        else:
            connection.sendall(ANSWER)

    found = fire(client, tmp_path, answer, 60, connections=2)
    assert Counter(found.status.tolist()) == {200: 40, 0: 20}


def test_a_connection_that_ended_while_idle_loses_nothing(client: Path, tmp_path: Path):
    def answer(connection: socket.socket, _: int, __: int) -> None:
        connection.sendall(ANSWER)
        connection.shutdown(socket.SHUT_RDWR)

    assert (fire(client, tmp_path, answer, 8, connections=4).status == 200).all()


def test_answers_may_come_in_pieces(client: Path, tmp_path: Path):
    pieces = (b"HTTP/1.1 42", b"9 Too Many\r\nretry-after: 1\r\ncontent-LENGTH:", b" 4\r\n\r", b"\nno", b"ne")

    def answer(connection: socket.socket, _: int, __: int) -> None:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.01)

    found = fire(client, tmp_path, answer, 20, connections=4)
    assert (found.status == 429).all()
    assert found.latencies(429).min() >= 0.04


def test_a_request_larger_than_a_sockets_buffer_is_sent_whole(client: Path, tmp_path: Path):
    def answer(connection: socket.socket, _: int, __: int) -> None:
        connection.sendall(ANSWER)

    assert (fire(client, tmp_path, answer, 4, b"x" * 12_000_000, connections=2).status == 200).all()


def test_a_terminated_client_waits_for_what_is_under_way(client: Path, tmp_path: Path):
    (tmp_path / "body.json").write_bytes(b"{}")

    def answer(connection: socket.socket, _: int, __: int) -> None:
        time.sleep(0.3)
        connection.sendall(ANSWER)

    with small_server(answer, 2) as address:
        arrived = Arriving(client, address, [tmp_path / "body.json"], [(100, 600)], tmp_path, connections=40)
        time.sleep(0.4)
        found = arrived.end()
    assert 10 < len(found.due) < 500
    assert (found.status == 200).all()


def test_a_machine_without_a_compiler_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LoadError, match="apt-get install gcc"):
        compile_client(tmp_path)
