"""Processes made by fork: what was imported before is theirs at once, and in memory once for all of them."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from service import logs

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


class Child:
    """A forked process; `returncode` is None while it runs, below zero where a signal ended it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code where it has ended; reaps it."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send(self, number: signal.Signals) -> None:
        """Signal it, unless it has been reaped: the number may then be another's."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def fork(work: Callable[[], int], name: str) -> Child:
    """Run `work` in a process of its own, which ends with its result; OSError where none can be had.

    To be called with no second thread running: a lock that another thread holds would stay locked in the child.
    """
    if threads() > 1:
        logs.event("forking beside a thread", level=logging.ERROR, threads=threads())
    sys.stdout.flush()
    sys.stderr.flush()
    with _signals_blocked() as before:
        pid = os.fork()
        if pid == 0:
            _live(work, name, before)
        with suppress(OSError):  # both sides do it, since either may be the first to need it
            os.setpgid(pid, pid)
    return Child(pid)


def threads() -> int:
    """Threads of this process, those of libraries included."""
    return len(os.listdir("/proc/self/task"))


def follow_lifeline(lifeline: int, seconds: float = 0.0) -> None:
    """When the supervisor is gone, end as if told to: its end of the pipe closes, however it died.

    Beyond `seconds` the end is no longer waited for.
    """

    def wait() -> None:
        os.read(lifeline, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(seconds)
        os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


@contextmanager
def _signals_blocked() -> Iterator[set[signal.Signals]]:
    """Inside, no signal can meet a child that still has its parent's handlers."""
    before = {signal.Signals(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)}
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _live(work: Callable[[], int], name: str, mask: set[signal.Signals]) -> NoReturn:
    """The child's whole life; never returns into the parent's frames."""
    code = 1
    try:
        _settle(name, mask)
        code = work()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException as error:  # noqa: BLE001 - the frames above are the parent's
        logs.event("process failed", level=logging.ERROR, exc_info=error)
    finally:
        with suppress(Exception):
            logging.shutdown()
        # Not the interpreter's own end: that is the parent's, and would wait for threads that nobody needs any more.
        os._exit(code)


def _settle(name: str, mask: set[signal.Signals]) -> None:
    """Shed what is the parent's alone: signals, the terminal, the course of its random numbers."""
    os.setpgid(0, 0)  # a Ctrl-C of the terminal is for the supervisor, which passes it on once
    signal.set_wakeup_fd(-1)
    for number in HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    gc.enable()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # Python's own generator does so by itself
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name, "ascii")
