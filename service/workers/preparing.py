"""A worker's way to the preparer: asks the supervisor for a version made ready, and says when it is done with it.

worker ── {"ask": [version, revision]} ──▶ supervisor ── forks a preparer, one at a time
       ◀── {"key": …, "folder": …} or {"key": …, "reason": …} ──
       ── {"release": [version, revision]} ──▶ when no worker holds it, its folder goes
"""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

# One message is one packet; a reason is cut to fit.
MAX_MESSAGE = 16_384
Key = tuple[str, int]


class PrepareError(Exception):
    """A version could not be made ready: one plain line that says why."""


class Preparing:
    """One worker's end. Methods may be called from any thread; `ask` blocks, for as long as the work takes."""

    def __init__(self, supervisor: socket.socket) -> None:
        self._supervisor = supervisor
        self._lock = threading.Lock()
        self._asked: dict[Key, Future[Path]] = {}
        self._uses: Counter[Key] = Counter()  # a question under way is a use, lest a release overtake its answer
        self._reader: threading.Thread | None = None

    def ask(self, version: str, revision: int) -> Path:
        """The folder of what was prepared, this worker's until `release`, read-only. PrepareError where it failed."""
        key = (version, revision)
        with self._lock:
            if self._reader is None:
                self._reader = threading.Thread(target=self._read, name="preparing", daemon=True)
                self._reader.start()
            self._uses[key] += 1
            answer = self._asked.get(key)
            if answer is None:
                answer = self._asked[key] = Future()
                self._send({"ask": key})
        try:
            return answer.result()
        except PrepareError:
            with self._lock:
                self._uses[key] -= 1
            raise

    def release(self, version: str, revision: int) -> None:
        """Undo one `ask` that was answered."""
        key = (version, revision)
        with self._lock:
            self._uses[key] -= 1
            if self._uses[key] <= 0:
                del self._uses[key]
                self._send({"release": key})

    def _send(self, message: dict[str, Key]) -> None:
        with suppress(OSError):  # the reader hears of it too
            self._supervisor.send(json.dumps(message).encode())

    def _read(self) -> None:
        """The thread: hands each answer to those who wait for it, and an end to all."""
        while packet := self._receive():
            message: dict[str, Any] = json.loads(packet)
            version, revision = message["key"]
            with self._lock:
                answer = self._asked.pop((version, revision), None)
            if answer is None:
                continue
            if "folder" in message:
                answer.set_result(Path(message["folder"]))
            else:
                answer.set_exception(PrepareError(message["reason"]))
        with self._lock:
            waiting, self._asked, self._reader = list(self._asked.values()), {}, None
        for answer in waiting:
            answer.set_exception(PrepareError("the supervisor is gone"))

    def _receive(self) -> bytes:
        try:
            return self._supervisor.recv(MAX_MESSAGE)
        except OSError:
            return b""
