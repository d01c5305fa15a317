"""Servers under load, each a process tree of its own on a free port of loopback; only what was started is stopped."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.accounts import tree
from benchmark.work import ROOT

LOADTESTS = Path(__file__).resolve().parents[1]
START_SECONDS, STOP_SECONDS = 180, 45


class ServerError(Exception):
    """A server did not start, or did not answer as it must: one plain line."""


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    url: str
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    def ask(self, method: str, path: str, body: bytes | None = None, seconds: float = 180) -> tuple[int, bytes]:
        """(status, body) of one request on a connection of its own; OSError where there is no answer."""
        connection = http.client.HTTPConnection(*self.address, timeout=seconds)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


@contextmanager
def service(
    name: str, artifacts: Path, folder: Path, weights: str, *options: str, workers: int, threads: int = 1
) -> Iterator[Server]:
    """The service by the command users run, with the versions of `weights` loaded and ready."""
    port = _free_port()
    state = folder / f"{name}.db"
    command = [sys.executable, "-m", "service", "serve", "--artifacts", str(artifacts), "--state", f"sqlite:///{state}"]
    command += ["--load", "none", "--weights", weights, "--workers", str(workers), "--threads", str(threads)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", *options]
    with _started(name, command, ROOT, port, folder, ("GET", "/readyz", None)) as server:
        yield server


@contextmanager
def floor(name: str, application: str, folder: Path, *, workers: int) -> Iterator[Server]:
    """One of the applications of floor.py in uvicorn, as bare as it goes."""
    port = _free_port()
    command = [sys.executable, "-m", "uvicorn", f"benchmark.floor:{application}", "--app-dir", str(LOADTESTS)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", str(workers), "--interface", "asgi3"]
    command += ["--lifespan", "off", "--no-access-log", "--log-level", "warning"]
    with _started(name, command, LOADTESTS, port, folder, ("POST", "/", b"{}")) as server:
        yield server


def check_answer(server: Server, body: bytes, expected: Sequence[float]) -> None:
    """Raise ServerError unless the server's scores of a body are the expected ones."""
    status, answer = server.ask("POST", "/predict", body)
    if status != 200:
        raise ServerError(f"{server.name} answers {status}: {answer[:300].decode(errors='replace')}")
    scores = json.loads(answer)["predictions"]
    if len(scores) != len(expected) or max(abs(a - b) for a, b in zip(scores, expected, strict=True)) > 1e-5:
        raise ServerError(f"{server.name} answers scores that are not the module's own")


@contextmanager
def _started(
    name: str, command: Sequence[str], home: Path, port: int, folder: Path, ready: tuple[str, str, bytes | None]
) -> Iterator[Server]:
    log = folder / f"{name}.log"
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TWINRANK_")}
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=home, stdout=output, stderr=output, env=clean)
    server = Server(name, f"http://127.0.0.1:{port}", process)
    try:
        _until_ready(server, ready, log)
        yield server
    finally:
        stop(process)


def stop(process: subprocess.Popen[Any]) -> None:
    """End the tree that the process is the root of: asked first, killed where it does not end."""
    pids = tree(process.pid)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        pids = sorted({*pids, *tree(process.pid)})
        process.kill()
        process.wait()
        for pid in pids:
            if pid != process.pid:
                _kill(pid)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _until_ready(server: Server, ready: tuple[str, str, bytes | None], log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and server.process.poll() is None:
        try:
            if server.ask(*ready, seconds=5)[0] == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.1)
    raise ServerError(f"{server.name} is not ready:\n{log.read_text(errors='replace')[-1500:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
