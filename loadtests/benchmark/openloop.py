"""Open loop: requests are sent when they are due, whatever became of those before. A process of its own.

    python -m benchmark.openloop SPEC.json      SIGTERM: nothing more falls due, what is under way is waited for

SPEC: {"host", "port", "files": [body, …], "phases": [[per second, seconds], …], "poisson", "seed", "connections",
"out": file.npz}. Prints "started" once the first is due. A loop of its own, since arrivals need finer timers than the
millisecond of asyncio and uvloop. Linux alone.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.schedule import arrivals

PATIENCE = 15.0  # seconds that an answer is waited for after the last arrival
_ABSOLUTE, _MONOTONIC, _FLAGS = 1, 1, os.O_NONBLOCK | os.O_CLOEXEC
libc = ctypes.CDLL(None, use_errno=True)


class Timer:
    """A file descriptor that becomes readable at a time of time.monotonic()."""

    def __init__(self) -> None:
        self.fd = libc.timerfd_create(_MONOTONIC, _FLAGS)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._value = (ctypes.c_long * 4)()  # interval and first time, each seconds and nanoseconds

    def set(self, at: float) -> None:
        self._value[2], self._value[3] = int(at), max(1, int(at % 1 * 1e9))
        libc.timerfd_settime(self.fd, _ABSOLUTE, self._value, None)


class Connection:
    """One HTTP/1.1 connection with at most one request under way."""

    __slots__ = ("address", "buffer", "fd", "request", "socket", "wanted")

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.open()

    def open(self) -> None:
        self.socket = socket.create_connection(self.address, timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.fd = self.socket.fileno()
        self.buffer, self.request, self.wanted = b"", -1, 0

    def send(self, request: int, data: bytes) -> None:
        self.request, self.buffer, self.wanted = request, b"", 0
        sent = self.socket.send(data)
        if sent < len(data):  # larger than the socket's buffer: rare, so simply waited for
            self.socket.setblocking(True)
            self.socket.sendall(data[sent:])
            self.socket.setblocking(False)

    def receive(self) -> int | None:
        """The status once the answer is whole, None before; ConnectionError where the connection has ended."""
        data = self.socket.recv(262_144)
        if not data:
            raise ConnectionResetError
        self.buffer += data
        if not self.wanted:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return None
            self.wanted = end + 4 + _length(self.buffer[:end])
        return int(self.buffer[9:12]) if len(self.buffer) >= self.wanted else None


def _length(head: bytes) -> int:
    at = head.lower().find(b"\r\ncontent-length:")
    return 0 if at < 0 else int(head[at + 17 :].split(b"\r\n", 1)[0])


class Client:
    """Sends requests in turn at their due times over a fixed number of connections, used in rotation."""

    def __init__(self, address: tuple[str, int], requests: list[bytes], connections: int) -> None:
        self.requests = requests
        self.poll, self.timer = select.epoll(), Timer()
        self.connections = {one.fd: one for one in (Connection(address) for _ in range(connections))}
        self.idle = deque(self.connections.values())
        for fd in (self.timer.fd, *self.connections):
            self.poll.register(fd, select.EPOLLIN)
        self.stopped = False

    def run(self, due: list[float]) -> dict[str, np.ndarray]:
        """Arrays by request, in seconds from the start; those that never fell due are left out."""
        seen, self.sent, self.done = [0.0] * len(due), [0.0] * len(due), [0.0] * len(due)
        self.status = [0] * len(due)
        self.start = time.monotonic() + 0.05
        waiting: deque[int] = deque()
        following, count, last = 0, len(due), self.start
        while True:
            now = time.monotonic() - self.start
            if self.stopped:
                count = following
            while following < count and due[following] <= now:
                seen[following] = now
                waiting.append(following)
                following += 1
            while waiting and self.idle:
                self._send(waiting.popleft())
            if following < count:
                last = self.start + due[following]
                self.timer.set(last)
            elif (not waiting and len(self.idle) == len(self.connections)) or now + self.start > last + PATIENCE:
                break
            for fd, _ in self.poll.poll(1.0):
                if fd == self.timer.fd:
                    _drain(fd)
                else:
                    self._receive(self.connections[fd])
        arrays = {"due": due, "seen": seen, "sent": self.sent, "done": self.done, "status": self.status}
        return {name: np.asarray(values[:count]) for name, values in arrays.items()}

    def _send(self, request: int) -> None:
        connection = self.idle.popleft()
        self.sent[request] = time.monotonic() - self.start
        try:
            connection.send(request, self.requests[request % len(self.requests)])
        except OSError:  # ended by the server while idle: seen here before it is seen by the poll
            self._replace(connection)
            self.idle.popleft().send(request, self.requests[request % len(self.requests)])

    def _receive(self, connection: Connection) -> None:
        try:
            status = connection.receive()
        except BlockingIOError:
            return
        except OSError:
            self._replace(connection)
            return
        if status is not None:
            self.done[connection.request], self.status[connection.request] = time.monotonic() - self.start, status
            connection.request = -1
            self.idle.append(connection)

    def _replace(self, connection: Connection) -> None:
        """A connection that has ended: its request, if any, stays without an answer."""
        self.poll.unregister(connection.fd)
        del self.connections[connection.fd]
        connection.socket.close()
        if connection in self.idle:
            self.idle.remove(connection)
        connection.open()
        self.connections[connection.fd] = connection
        self.poll.register(connection.fd, select.EPOLLIN)
        self.idle.appendleft(connection)


def _drain(fd: int) -> None:
    with suppress(BlockingIOError):
        os.read(fd, 8)


def render(host: str, body: bytes) -> bytes:
    head = f"POST /predict HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


def main(path: str) -> None:
    spec: dict[str, Any] = json.loads(Path(path).read_text())
    bodies = [Path(file).read_bytes() for file in spec["files"]]
    requests = [render(f"{spec['host']}:{spec['port']}", body) for body in bodies]
    client = Client((spec["host"], spec["port"]), requests, spec["connections"])

    def stop(*_: Any) -> None:
        client.stopped = True

    signal.signal(signal.SIGTERM, stop)
    due = arrivals(spec["phases"], poisson=spec["poisson"], seed=spec["seed"]).tolist()
    gc.collect()
    gc.disable()  # a collection would be measured as the server's
    print("started", flush=True)
    np.savez(spec["out"], **client.run(due))


if __name__ == "__main__":
    main(sys.argv[1])
