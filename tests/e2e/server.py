"""A real service for tests: the command users run, its workers, its state, on a free port of loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Service:
    """A running `python -m service serve`; `options` are its command line beyond the addresses."""

    artifacts: Path
    folder: Path
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "service.log").read_text(errors="replace")

    def start(self, *, ready: bool = True, seconds: float = 60) -> None:
        command = [sys.executable, "-m", "service", "serve", "--artifacts", str(self.artifacts)]
        command += ["--state", f"sqlite:///{self.folder / 'state.db'}", "--port", str(self.port), *self.options]
        clean = {key: value for key, value in os.environ.items() if not key.startswith("TWINRANK_")}
        # Several tests share the cores: what a test does not say of time is not what it is about.
        clean["TWINRANK_BUDGET_MS"] = "60000"
        with (self.folder / "service.log").open("ab") as log:
            environment = {**clean, **self.environment}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.wait("/readyz" if ready else "/livez", seconds)
        if ready and "all" in self.options:
            self._wait_for_all(seconds)

    def wait(self, path: str, seconds: float) -> None:
        """Until `path` answers 200."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            assert self.process is not None
            assert self.process.poll() is None, f"the service ended:\n{self.log}"
            try:
                if httpx.get(self.url + path, timeout=2).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"{path} never answered 200:\n{self.log}")

    def _wait_for_all(self, seconds: float) -> None:
        """Ready is said once those with weight are; a test of `--load all` means the others too."""
        ends = time.monotonic() + seconds
        while True:
            states = [one["state"] for one in httpx.get(self.url + "/models", timeout=10).json()["models"]]
            if all(state in ("ready", "failed") for state in states):
                return
            assert time.monotonic() < ends, f"not all versions were loaded:\n{self.log}"
            time.sleep(0.05)

    def workers(self) -> list[psutil.Process]:
        assert self.process is not None
        return workers_of(self.process.pid)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 40) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def kill(self) -> None:
        """End all that was started, whatever its state."""
        if self.process is not None and self.process.poll() is None:
            workers = self.workers()
            self.process.kill()  # first: it would replace them
            self.process.wait(10)
            for one in workers:
                with suppress(psutil.NoSuchProcess):  # ended by itself since
                    one.kill()

    def put(self, path: str, body: Any = None, **kwargs: Any) -> httpx.Response:
        return httpx.put(self.url + path, json=body, timeout=60, **kwargs)

    def predict(self, body: Any, **kwargs: Any) -> httpx.Response:
        return httpx.post(self.url + "/predict", json=body, timeout=30, **kwargs)

    def metrics(self) -> dict[str, float]:
        """Every sample of one scrape by its line's head: `name{label="value"}`."""
        return samples(httpx.get(self.url + "/metrics", timeout=10).text)


def samples(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            key = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert key not in found, f"{key} stands twice in one scrape"
            found[key] = sample.value
    return found


@contextmanager
def serving(artifacts: Path, folder: Path, *options: str, ready: bool = True, **environment: str) -> Iterator[Service]:
    """A service that is ready, and gone at the end whatever happens."""
    folder.mkdir(parents=True, exist_ok=True)
    service = Service(artifacts, folder, options, environment)
    try:
        service.start(ready=ready)
        yield service
    finally:
        service.kill()


def workers_of(supervisor: int) -> list[psutil.Process]:
    """The supervisor's living children that are workers, by the names that they give themselves."""
    found = []
    for child in psutil.Process(supervisor).children():
        with suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE and child.name().startswith("worker"):
                found.append(child)
    return found
