"""SIGTERM, as when a spot machine is taken away: heard between two batches, or at once where no batch is at work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(BaseException):
    """The process was asked to end; like KeyboardInterrupt nothing that handles failures may swallow it."""


class Stopping:
    """Raises Terminated on SIGTERM; within `deferred`, only where `check` is called."""

    def __init__(self) -> None:
        self.asked = self._deferred = False

    @contextmanager
    def listening(self) -> Iterator[Stopping]:
        """Hear SIGTERM until the block ends; a thread that is not the main one cannot, and does not."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = signal.signal(signal.SIGTERM, self._hear)
        try:
            yield self
        finally:
            signal.signal(signal.SIGTERM, before)

    @contextmanager
    def deferred(self, deferred: bool = True) -> Iterator[None]:
        """What runs inside is not torn apart; with False, what runs inside of that may be."""
        before, self._deferred = self._deferred, deferred
        try:
            if not deferred:
                self.check()
            yield
        finally:
            self._deferred = before

    def check(self) -> None:
        if self.asked:
            raise Terminated

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if not self._deferred:
            raise Terminated
