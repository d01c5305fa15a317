"""What the supervisor sleeps on: signals, and the handles through which workers speak."""

from __future__ import annotations

import selectors
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from types import FrameType


class Wakes:
    """Takes the process's signals over. `ends` counts those that ask it to end; a child's end only wakes it."""

    def __init__(self) -> None:
        self.ends = 0
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        for handle in (self._woken, self._waker):
            handle.setblocking(False)
        self.watch(self._woken, self._drain)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, self._on_signal)

    def watch(self, handle: socket.socket, on_ready: Callable[[], None]) -> None:
        self._selector.register(handle, selectors.EVENT_READ, on_ready)

    def forget(self, handle: socket.socket) -> None:
        """To be called before the handle is closed: a child may hold it too, which keeps it alive."""
        self._selector.unregister(handle)

    def wait(self, seconds: float | None) -> None:
        """Sleep until something happens or the time is over, and answer it."""
        for key, _ in self._selector.select(seconds):
            key.data()

    def shed(self) -> None:
        """In a child: let go of what is the parent's."""
        for handle in (self._selector, self._woken, self._waker):
            handle.close()

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self.ends += 1
