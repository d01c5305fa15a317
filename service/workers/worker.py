"""What one worker process runs: the app on the inherited socket, until it is told to drain."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
import uvicorn

from service import logs
from service.app import State, create_app
from service.config import Settings
from service.control import Control, Seat
from service.opening import Computing, Shared
from service.scoring.device import DeviceError, choose_device
from service.start import BadStart, fill
from service.state import StateError, StateStore
from service.workers import memory
from service.workers.accepting import Acceptor
from service.workers.children import follow_lifeline
from service.workers.preparing import Preparing
from service.workers.protocol import Protocol
from service.workers.seats import GRACE_SECONDS, START_FAILED, Place

SWITCH_SECONDS = 0.0005
# What was sent before the signal to drain may lie unread behind what the loop is busy with.
LAST_READ_SECONDS = 0.02
# Between two looks at requests that no task stands for.
LOOK_SECONDS = 0.005


class Server(uvicorn.Server):
    """uvicorn's server with two ways of its own: it drains first and stops accepting after, and takes no more than its
    share of the connections."""

    def __init__(self, config: uvicorn.Config, place: Place, drain_seconds: float) -> None:
        super().__init__(config)
        self._place, self._drain_seconds = place, drain_seconds
        self._drain: asyncio.Task[None] | None = None
        self._acceptor: Acceptor | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        place = self._place
        self._acceptor = Acceptor(place.listener, self._protocol, place.connections, place.seat)
        self._acceptor.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        assert self._acceptor is not None
        await self._acceptor.close()
        await super().shutdown()

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

    def _protocol(self) -> Protocol:
        return Protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def _wait_for_running(self) -> None:
        control: Control = self.lifespan.state["control"]
        await asyncio.sleep(LAST_READ_SECONDS)
        control.draining = True
        running = set(self.server_state.tasks)
        loop, predict = asyncio.get_running_loop(), cast(State, self.lifespan.state)["predict"]
        end = loop.time() + self._drain_seconds
        if running:
            await asyncio.wait(running, timeout=self._drain_seconds)
        while predict.waiting and loop.time() < end:  # noqa: ASYNC110 - an event would cost each request something
            await asyncio.sleep(LOOK_SECONDS)
        self.should_exit = True


def run(settings: Settings, place: Place) -> int:
    """Serve on the inherited socket until told to end; the exit code."""
    logs.configure()
    memory.keep_little()
    torch.set_num_threads(settings.threads)
    try:
        device = choose_device(settings.device)
        if not place.replacement:  # a replacement finds the state as it is, or says that it is gone
            with StateStore.open(settings.state) as store:
                fill(store, settings)
    except (DeviceError, BadStart, StateError) as error:
        message = f"--device: {error}" if isinstance(error, DeviceError) else str(error)
        place.start_error.write_text(f"python -m service serve: {message}", "utf-8")
        return START_FAILED
    seat = Seat(place.replica, str(place.seat), place.replacement)
    logs.event("worker starts", seat=seat.worker, device=device, threads=torch.get_num_threads())
    computing = Computing(device, settings.precision, settings.precision_tolerance, settings.max_rows)
    opening = Shared(Preparing(place.supervisor), computing)
    app = create_app(settings, device=device, seat=seat, metrics_folder=place.metrics, opening=opening)
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
    server = Server(config, place, settings.drain_seconds)
    follow_lifeline(place.lifeline, settings.drain_seconds + GRACE_SECONDS)
    calm_collector()
    # A thread that loads a version holds the interpreter's lock for so long before the loop may ask for it.
    sys.setswitchinterval(SWITCH_SECONDS)
    server.run()
    return 0 if server.started else START_FAILED


def calm_collector() -> None:
    """Let the cyclic garbage collector run rarely, over what requests leave behind alone.

    A parsed request is thousands of containers without a cycle. With Python's own thresholds full collections took a
    third of the CPU under large requests, and up to a quarter of a second during which no health check was answered.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
