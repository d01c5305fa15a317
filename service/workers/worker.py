"""What one worker process runs: the app on the inherited socket, until it is told to drain."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import uvicorn

from service import logs
from service.app import create_app
from service.config import Settings
from service.control import Control, Seat
from service.scoring.device import DeviceError, choose_device
from service.start import BadStart, fill
from service.state import StateError, StateStore
from service.workers.protocol import Protocol
from service.workers.seats import GRACE_SECONDS, START_FAILED


class Server(uvicorn.Server):
    """uvicorn's server, but that its own way with signals is replaced: drain first, stop accepting after."""

    def __init__(self, config: uvicorn.Config, drain_seconds: float) -> None:
        super().__init__(config)
        self._drain_seconds = drain_seconds
        self._drain: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.drain)
        yield

    def drain(self) -> None:
        """Take no new predictions, answer those that run, then stop; readiness and metrics answer meanwhile."""
        if not self.started:
            os._exit(0)  # nobody was let in yet
        if self._drain is None:
            self._drain = asyncio.create_task(self._wait_for_running())

    async def _wait_for_running(self) -> None:
        control: Control = self.lifespan.state["control"]
        control.draining = True
        running = set(self.server_state.tasks)
        if running:
            await asyncio.wait(running, timeout=self._drain_seconds)
        self.should_exit = True


def run(settings: Settings, given: argparse.Namespace) -> int:
    """Serve on the inherited socket as `given` by the supervisor; the exit code."""
    logs.configure()
    torch.set_num_threads(settings.threads)
    try:
        device = choose_device(settings.device)
        if not given.replacement:  # a replacement finds the state as it is, or says that it is gone
            with StateStore.open(settings.state) as store:
                fill(store, settings)
    except (DeviceError, BadStart, StateError) as error:
        message = f"--device: {error}" if isinstance(error, DeviceError) else str(error)
        (Path(given.metrics).parent / "start-error").write_text(f"python -m service serve: {message}", "utf-8")
        return START_FAILED
    logs.event("worker starts", seat=given.seat, device=device, threads=torch.get_num_threads())
    seat = Seat(given.replica, given.seat, given.replacement)
    app = create_app(settings, device=device, seat=seat, metrics_folder=Path(given.metrics))
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # nobody asks where a request came from
        server_header=False,
        timeout_keep_alive=75,  # longer than a gateway's own idle limit, so that it is the gateway who closes
        timeout_graceful_shutdown=1,
    )
    server = Server(config, settings.drain_seconds)
    follow_lifeline(server, given.lifeline, settings.drain_seconds)
    calm_collector()
    server.run(sockets=[socket.socket(fileno=given.socket)])
    logging.shutdown()
    # Not the interpreter's own end: that would wait for a thread in a load or a batch that nobody needs any more.
    os._exit(0 if server.started else START_FAILED)


def calm_collector() -> None:
    """Let the cyclic garbage collector run rarely, over what requests leave behind alone.

    A parsed request is thousands of containers without a cycle. With Python's own thresholds full collections took a
    third of the CPU under large requests, and up to a quarter of a second during which no health check was answered.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def follow_lifeline(server: Server, lifeline: int, drain_seconds: float) -> None:
    """Drain when the supervisor is gone: its end of the pipe closes, however it died."""

    def wait() -> None:
        os.read(lifeline, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(drain_seconds + GRACE_SECONDS)
        os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
