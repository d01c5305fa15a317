"""The supervisor: binds the socket, starts the workers, replaces those that die, stops them all. Imports no torch.

SIGTERM, SIGINT   once: the workers drain, exit 0; again: they are killed
a worker dies     another takes its seat; one that keeps dying is started ever more rarely
the supervisor    dies: the workers see the end of a pipe, drain and go
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from service import logs
from service.config import Settings
from service.metrics import forget_worker
from service.state import StateError, StateStore
from service.workers.seats import GRACE_SECONDS, START_FAILED, StartError, seat_options

TICK_SECONDS = 0.05
QUICK_DEATH_SECONDS = 10.0
FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 10.0


@dataclass(slots=True)
class Slot:
    """One worker's seat, and the process on it; `deaths` counts quick ones in a row."""

    index: int
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    starts: int = 0
    deaths: int = 0
    next_start: float = 0.0


def bind(settings: Settings) -> socket.socket:
    """A listening socket of the settings' address; StartError where it cannot be had."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise StartError(f"--host: cannot use '{settings.host}': {error.strerror or error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Listening already here claims the port: two sockets that are merely bound could share it.
        listener.listen(2048)
    except OSError as error:
        listener.close()
        option = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        raise StartError(f"{option}: cannot listen on {settings.host}:{settings.port}: {error.strerror}") from None
    return listener


def serve(settings: Settings, options: list[str]) -> int:
    """Run the service until a signal ends it; `options` is the command line that gave the settings. The exit code."""
    if not settings.artifacts.is_dir():
        raise StartError(f"--artifacts: there is no folder '{settings.artifacts}'")
    listener = bind(settings)
    try:
        store = StateStore.open(settings.state)
    except StateError as error:
        listener.close()
        raise StartError(str(error)) from None
    folder = Path(tempfile.mkdtemp(prefix="twinrank-"))
    try:
        return Supervisor(settings, options, listener, store, folder).run()
    finally:
        listener.close()
        store.close()
        shutil.rmtree(folder, ignore_errors=True)


class Supervisor:
    """Keeps `settings.workers` processes alive on one listening socket."""

    def __init__(
        self, settings: Settings, options: list[str], listener: socket.socket, store: StateStore, folder: Path
    ) -> None:
        self._settings, self._options, self._listener, self._store = settings, options, listener, store
        self._metrics, self._start_error = folder / "metrics", folder / "start-error"
        self._metrics.mkdir()
        # Host and port to be read; the rest since two containers may share both.
        self._replica = f"{socket.gethostname()}:{listener.getsockname()[1]}-{secrets.token_hex(3)}"
        self._slots = [Slot(index) for index in range(settings.workers)]
        self._lifeline, self._held_end = os.pipe()
        self._signals = 0
        self._woken = threading.Event()

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._forget(None)
        for slot in self._slots:
            self._start(slot)
        host, port = self._listener.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        logs.event(
            "listening", url=url, replica=self._replica, workers=len(self._slots), threads=self._settings.threads
        )
        code = self._watch()
        drained = self._stop()
        self._forget(None)
        logs.event("stopped", drained=drained)
        return code if drained else 1

    def _watch(self) -> int:
        """Replace the dead until a signal comes, or none can start at all."""
        while not self._signals:
            for slot in self._slots:
                if slot.process is not None and slot.process.poll() is not None:
                    if slot.starts == 1 and slot.process.returncode == START_FAILED:
                        print(self._why_not_started(), file=sys.stderr)
                        return 1
                    self._bury(slot)
                if slot.process is None and time.monotonic() >= slot.next_start:
                    self._start(slot)
            time.sleep(TICK_SECONDS)
        return 0

    def _stop(self) -> bool:
        """Let the workers drain; a second signal, or too much time, kills them. Whether none had to be."""
        running = [slot.process for slot in self._slots if slot.process is not None and slot.process.poll() is None]
        logs.event("draining", workers=len(running))
        for process in running:
            process.terminate()
        ends = time.monotonic() + self._settings.drain_seconds + GRACE_SECONDS
        while any(process.poll() is None for process in running):
            if self._signals > 1 or time.monotonic() > ends:
                for process in running:
                    process.kill()
            time.sleep(TICK_SECONDS)
        # One that was still importing has let nobody in: the signal itself may end it.
        return all(process.returncode in (0, -signal.SIGTERM) for process in running)

    def _start(self, slot: Slot) -> None:
        handles = (self._listener.fileno(), self._lifeline)
        again = slot.starts > 0
        seat = seat_options(slot.index, self._replica, str(self._metrics), handles, replacement=again)
        threads = str(self._settings.threads)
        slot.process = subprocess.Popen(
            [sys.executable, "-m", "service", "_worker", *seat, *self._options],
            env={**os.environ, "OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "PASSIVE", "MKL_NUM_THREADS": threads},
            stdin=subprocess.DEVNULL,
            pass_fds=handles,
            process_group=0,  # a Ctrl-C of the terminal is for the supervisor, which passes it on once
        )
        slot.started, slot.starts = time.monotonic(), slot.starts + 1

    def _bury(self, slot: Slot) -> None:
        """Clear away after a dead worker and say when its seat is taken again."""
        assert slot.process is not None
        forget_worker(self._metrics, slot.process.pid)
        self._forget(str(slot.index))
        quick = time.monotonic() - slot.started < QUICK_DEATH_SECONDS
        slot.deaths = slot.deaths + 1 if quick else 0
        delay = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2 ** (slot.deaths - 1)) if slot.deaths > 1 else 0.0
        code = slot.process.returncode
        logs.event("worker died", seat=slot.index, dead=slot.process.pid, exit=code, replaced_in_seconds=delay)
        slot.process, slot.next_start = None, time.monotonic() + delay

    def _forget(self, worker: str | None) -> None:
        with suppress(StateError):  # its row grows stale by itself
            self._store.forget(self._replica, worker)

    def _why_not_started(self) -> str:
        try:
            return self._start_error.read_text(encoding="utf-8").strip()
        except OSError:
            return "python -m service serve: a worker could not start; its own lines say why"

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
