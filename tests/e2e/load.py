"""A steady load of predictions that remembers every answer, and how each failure looked."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass(frozen=True)
class Answer:
    """One request's end: `status` 0 is a transport error."""

    number: int
    status: int
    started: float
    ended: float
    body: Any


@dataclass
class Load:
    """Closed-loop clients in a thread of their own; `make(n)` gives the n-th body."""

    url: str
    make: Callable[[int], dict[str, Any]]
    clients: int = 8
    answers: list[Answer] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def codes(self) -> Counter[int]:
        return Counter(answer.status for answer in self.answers)

    def failures(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.status != 200]

    async def _client(self, numbers: Iterator[int]) -> None:
        async with httpx.AsyncClient(base_url=self.url, timeout=30) as client:
            for number in numbers:
                if self._stop.is_set():
                    return
                started = time.monotonic()
                try:
                    response = await client.post("/predict", json=self.make(number))
                    status, body = response.status_code, response.json()
                except httpx.TransportError as error:
                    status, body = 0, repr(error)
                self.answers.append(Answer(number, status, started, time.monotonic(), body))

    async def _run(self) -> None:
        numbers = itertools.count()
        await asyncio.gather(*(self._client(numbers) for _ in range(self.clients)))

    @contextmanager
    def running(self) -> Iterator[Load]:
        """Load while the block runs; every request has ended when it is left."""
        thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join(60)
            assert not thread.is_alive(), "a request never ended"
