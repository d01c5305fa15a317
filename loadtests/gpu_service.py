"""A service on the device, started as users start it, asked over HTTP."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
Json = dict[str, Any]


@contextmanager
def served(artifacts: Path, data: Path, device: str) -> Iterator[str]:
    """The URL of a service with all versions at equal weights; AssertionError where it does not end well."""
    options = ["--artifacts", str(artifacts), "--state", f"sqlite:///{data / 'state.db'}", "--port", "0"]
    command = [sys.executable, "-m", "service", "serve", *options, "--load", "all", "--weights", "a=1,b=1"]
    log = data / "service.log"
    with log.open("w") as output:
        service = subprocess.Popen([*command, "--device", device], cwd=ROOT, stdout=output, stderr=output)
    try:
        url = _until(lambda: _listening(log), 60)
        _until(lambda: _answers(f"{url}/readyz"), 120)
        yield url
    finally:
        service.terminate()
        code = service.wait(timeout=60)
    assert code == 0, f"the service ended with {code}"


def ask(url: str, body: Json) -> Json:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return dict(json.load(response))


def hammer(url: str, bodies: list[bytes], callers: int, seconds: float) -> tuple[list[float], int]:
    """Milliseconds of each answer that callers, one request at a time on a connection, got; and refusals (429)."""
    address = urlsplit(url)
    until = time.perf_counter() + seconds

    def call(caller: int) -> tuple[list[float], int]:
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
        taken: list[float] = []
        refused = 0
        while time.perf_counter() < until:
            started = time.perf_counter()
            body = bodies[(caller + len(taken) + refused) % len(bodies)]
            connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            assert response.status in (200, 429), response.status
            if response.status == 200:
                taken.append((time.perf_counter() - started) * 1000)
            else:
                refused += 1
                time.sleep(0.02)  # far less than Retry-After asks for: the next answer is wanted soon
        connection.close()
        return taken, refused

    with ThreadPoolExecutor(callers) as pool:
        done = list(pool.map(call, range(callers)))
    return [one for times, _ in done for one in times], sum(refused for _, refused in done)


def _until(ask: Callable[[], Any], seconds: float) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if answer := ask():
            return answer
        time.sleep(0.2)
    raise AssertionError(f"nothing after {seconds:.0f} s")


def _listening(log: Path) -> str | None:
    for line in log.read_text(encoding="utf-8").splitlines():
        if '"listening"' in line:
            return str(json.loads(line)["url"])
    return None


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False
