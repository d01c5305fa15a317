"""Connections are shared out evenly, and a worker that hangs costs none."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import psutil

from tests.e2e.server import Service

REQUEST = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


def held(worker: psutil.Process, port: int) -> int:
    """Connections that a worker has accepted."""
    try:
        found = worker.net_connections("tcp")
    except psutil.NoSuchProcess:
        return 0
    return sum(one.status == psutil.CONN_ESTABLISHED for one in found if one.laddr.port == port)


@contextmanager
def connected(service: Service, count: int) -> Iterator[list[socket.socket]]:
    """So many connections, each answered once."""
    with ExitStack() as stack:
        address = ("127.0.0.1", service.port)
        found = [stack.enter_context(socket.create_connection(address, timeout=10)) for _ in range(count)]
        for one in found:
            one.sendall(REQUEST)
        for one in found:
            assert one.recv(65536).startswith(b"HTTP/1.1 200")
        yield found
    ends = time.monotonic() + 10
    while any(held(worker, service.port) for worker in service.workers()):
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_each_worker_takes_its_share_of_fresh_connections(service: Service) -> None:
    shares = []
    for _ in range(5):
        with connected(service, 32):
            shares.append(held(service.workers()[0], service.port))
    # One set may meet a worker that the machine kept from running.
    assert sorted(abs(share - 16) for share in shares)[-2] <= 2, shares


def test_connections_that_come_one_by_one_are_shared_too(service: Service) -> None:
    with ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(httpx.Client(base_url=service.url))
            assert client.get("/livez").status_code == 200
        shares = [held(worker, service.port) for worker in service.workers()]
    assert max(shares) - min(shares) <= 4, shares


def test_a_worker_that_hangs_costs_no_connection(service: Service) -> None:
    hung, other = service.workers()
    hung.send_signal(signal.SIGSTOP)
    try:
        begun = time.monotonic()
        with connected(service, 32):
            assert time.monotonic() - begun < 2
            assert held(other, service.port) == 32
    finally:
        hung.send_signal(signal.SIGCONT)


def test_who_replaces_a_dead_worker_takes_what_comes_until_it_holds_as_many(service: Service) -> None:
    with ExitStack() as stack:

        def connect() -> None:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=10))
            client.sendall(REQUEST)
            assert client.recv(65536).startswith(b"HTTP/1.1 200")

        for _ in range(16):
            connect()
        victim, survivor = service.workers()
        victim.kill()
        victim.wait(10)
        ends = time.monotonic() + 30
        while sum(held(worker, service.port) for worker in service.workers() if worker != survivor) == 0:
            assert time.monotonic() < ends, service.log
            time.sleep(0.1)
            connect()
        before = held(survivor, service.port)
        for _ in range(6):
            connect()
        assert held(survivor, service.port) <= before + 3  # a busy machine may keep the newcomer from its turn
