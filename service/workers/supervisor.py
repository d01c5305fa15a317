"""The supervisor: binds the socket, imports for all, forks the workers, replaces those that die, stops them all.

SIGTERM, SIGINT   once: the workers drain, exit 0; again: they are killed
a worker dies     another takes its seat; one that keeps dying is started ever more rarely
a worker asks     a preparer makes a version ready for all
the supervisor    dies: the workers see the end of a pipe, drain and go

It has one thread, no event loop, no tensor and no open database when it forks: a child inherits a quiet process.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from service import logs
from service.config import Settings
from service.metrics import forget_worker
from service.state import StateError, StateStore
from service.workers import preload
from service.workers.children import Child, follow_lifeline, fork
from service.workers.listening import bind, url_of
from service.workers.preparations import Preparations
from service.workers.preparer import Prepare, prepare_version
from service.workers.preparing import MAX_MESSAGE
from service.workers.scratch import scratch
from service.workers.seats import (
    GRACE_SECONDS,
    START_FAILED,
    Connections,
    Place,
    StartError,
    metrics_folder,
    start_error_file,
)
from service.workers.starving import LOOK_SECONDS
from service.workers.wakes import Wakes

TICK_SECONDS = 0.05
QUICK_DEATH_SECONDS = 10.0
FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 10.0

Work = Callable[[Settings, Place], int]


@dataclass(slots=True)
class Slot:
    """One worker's seat, and the process on it; `deaths` counts quick ones in a row."""

    index: int
    process: Child | None = None
    channel: socket.socket | None = None
    started: float = 0.0
    starts: int = 0
    deaths: int = 0
    next_start: float = 0.0


def serve(settings: Settings) -> int:
    """Run the service until a signal ends it; the exit code."""
    if not settings.artifacts.is_dir():
        raise StartError(f"--artifacts: there is no folder '{settings.artifacts}'")
    listener = bind(settings)
    try:
        store = StateStore.open(settings.state)
    except StateError as error:
        listener.close()
        raise StartError(str(error)) from None
    try:
        with scratch() as folder:
            return Supervisor(settings, listener, store, folder).run()
    finally:
        listener.close()
        store.close()


def work(settings: Settings, place: Place) -> int:
    """What a worker process runs."""
    from service.workers.worker import run

    return run(settings, place)


class Supervisor:
    """Keeps `settings.workers` processes alive on one listening socket.

    `work` is what each of them runs, `prepare` what makes a version ready for them, `load` comes before any fork.
    """

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        store: StateStore,
        folder: Path,
        *,
        work: Work = work,
        prepare: Prepare = prepare_version,
        load: Callable[[], None] = preload.import_all,
    ) -> None:
        self._settings, self._listener, self._store, self._folder = settings, listener, store, folder
        self._work, self._load = work, load
        metrics_folder(folder).mkdir()
        # Host and port to be read; the rest since two containers may share both.
        self._replica = f"{socket.gethostname()}:{listener.getsockname()[1]}-{secrets.token_hex(3)}"
        self._slots = [Slot(index) for index in range(settings.workers)]
        self._connections = Connections(settings.workers)
        self._lifeline, self._held_end = os.pipe()
        self._wakes = Wakes()
        self._preparations = Preparations(
            prepare, settings.artifacts, folder / "prepared", fork=self._fork_preparer, answer=self._answer
        )

    def run(self) -> int:
        self._forget(None)
        self._load()
        if not self._wakes.ends:
            for slot in self._slots:
                self._start(slot)
            threads, workers = self._settings.threads, len(self._slots)
            url = url_of(self._listener)
            logs.event("listening", url=url, replica=self._replica, workers=workers, threads=threads)
        code = self._watch()
        drained = self._stop()
        self._forget(None)
        logs.event("stopped", drained=drained)
        return code if drained else 1

    def _watch(self) -> int:
        """Replace the dead until a signal comes, or none can start at all."""
        while not self._wakes.ends:
            for slot in self._slots:
                if slot.process is not None and slot.process.poll() is not None:
                    if slot.starts == 1 and slot.process.returncode == START_FAILED:
                        print(self._why_not_started(), file=sys.stderr)
                        return 1
                    self._bury(slot)
                if slot.process is None and time.monotonic() >= slot.next_start:
                    self._start(slot)
            self._preparations.look()
            waits = [slot.next_start - time.monotonic() for slot in self._slots if slot.process is None]
            if self._preparations.running:
                waits.append(LOOK_SECONDS)
            self._wakes.wait(max(0.0, min(waits)) if waits else None)
        return 0

    def _stop(self) -> bool:
        """Let the workers drain; a second signal, or too much time, kills them. Whether none had to be."""
        self._preparations.stop()
        running = [slot.process for slot in self._slots if slot.process is not None and slot.process.poll() is None]
        logs.event("draining", workers=len(running))
        for process in running:
            process.send(signal.SIGTERM)
        ends = time.monotonic() + self._settings.drain_seconds + GRACE_SECONDS
        while any(process.poll() is None for process in running) or self._preparations.running:
            left = ends - time.monotonic()
            if self._wakes.ends > 1 or left <= 0:
                for process in running:
                    process.send(signal.SIGKILL)
            self._wakes.wait(max(left, TICK_SECONDS))
            self._preparations.look()
        # One that was not yet up has let nobody in: the signal itself may end it.
        return all(process.returncode in (0, -signal.SIGTERM) for process in running)

    def _start(self, slot: Slot) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        place = Place(
            seat=slot.index,
            replica=self._replica,
            replacement=slot.starts > 0,
            folder=self._folder,
            listener=self._listener,
            lifeline=self._lifeline,
            supervisor=theirs,
            connections=self._connections,
        )

        def live() -> int:
            ours.close()
            self._shed()
            return self._work(self._settings, place)

        slot.started = time.monotonic()
        try:
            slot.process = fork(live, f"worker {slot.index}")
        except OSError as error:
            logs.event("no worker can be started", level=logging.ERROR, seat=slot.index, error=str(error))
            slot.next_start = slot.started + LONGEST_DELAY_SECONDS
            ours.close()
        else:
            slot.starts, slot.channel = slot.starts + 1, ours
            self._wakes.watch(ours, partial(self._read, slot))
        finally:
            theirs.close()

    def _fork_preparer(self, work: Callable[[], int]) -> Child:
        def live() -> int:
            self._shed()
            self._listener.close()
            follow_lifeline(self._lifeline)
            return work()

        return fork(live, "preparer")

    def _shed(self) -> None:
        """In a child: let go of what is the supervisor's. Its end of the lifeline else would outlive it."""
        self._wakes.shed()
        os.close(self._held_end)
        for slot in self._slots:
            if slot.channel is not None:
                slot.channel.close()

    def _bury(self, slot: Slot) -> None:
        """Clear away after a dead worker and say when its seat is taken again."""
        assert slot.process is not None
        self._hang_up(slot)
        self._connections.leave(slot.index)
        forget_worker(metrics_folder(self._folder), slot.process.pid)
        self._forget(str(slot.index))
        quick = time.monotonic() - slot.started < QUICK_DEATH_SECONDS
        slot.deaths = slot.deaths + 1 if quick else 0
        delay = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2 ** (slot.deaths - 1)) if slot.deaths > 1 else 0.0
        code = slot.process.returncode
        logs.event("worker died", seat=slot.index, dead=slot.process.pid, exit=code, replaced_in_seconds=delay)
        slot.process, slot.next_start = None, time.monotonic() + delay

    def _read(self, slot: Slot) -> None:
        """Take what a worker says; its silence is its end."""
        assert slot.channel is not None
        try:
            packet = slot.channel.recv(MAX_MESSAGE)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            return self._hang_up(slot)
        [(verb, (version, revision))] = json.loads(packet).items()
        answer = self._preparations.ask if verb == "ask" else self._preparations.release
        answer(slot.index, (version, revision))

    def _answer(self, seat: int, message: dict[str, Any]) -> None:
        """Tell a worker; one that is gone or reads nothing is not waited for."""
        channel = self._slots[seat].channel
        if channel is not None:
            with suppress(OSError):
                channel.send(json.dumps(message).encode())

    def _hang_up(self, slot: Slot) -> None:
        if slot.channel is not None:
            self._wakes.forget(slot.channel)
            slot.channel.close()
            slot.channel = None
            self._preparations.drop(slot.index)

    def _forget(self, worker: str | None) -> None:
        with suppress(StateError):  # its row grows stale by itself
            self._store.forget(self._replica, worker)
        self._store.close()  # a database that is open must not cross a fork

    def _why_not_started(self) -> str:
        try:
            return start_error_file(self._folder).read_text(encoding="utf-8").strip()
        except OSError:
            return "python -m service serve: a worker could not start; its own lines say why"
