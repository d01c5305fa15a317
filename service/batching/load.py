"""How much a worker has taken on, over all its batchers: they share its cores and its event loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from service.batching.entries import QueueFull

TOO_MUCH = "more requests than can be answered in time"
# Reading, choosing and answering, beside what `run` takes. A first guess: `stretch` is measured with it in place.
REQUEST_SECONDS = 1e-4
# The share of the budget that is given away. The rest is for what is not seen from here: what varies, and the time
# after an answer is written.
SHARE = 0.5
# A request waits for up to a turn of the event loop before it is read. At most this share of what is given away is set
# aside for that: else a worker whose turns are long would take one request a turn.
TURN_SHARE = 0.5
# The stretch is that of the last fraction of a second, so that an overload that is over is soon forgotten; no pause
# counts with more than PAUSE seconds.
MEMORY = 0.25
PAUSE = 0.1
STRETCH = (0.25, 20.0)


class Load:
    """Work taken on and not yet answered, in seconds of work as expected, held against a time budget.

    A second of expected work takes `stretch` seconds: the measured ratio of the time under work to the work done in
    it. So it also covers refusals, other processes, and whatever else the expectation leaves out. By Little's law
    the work at hand, stretched, is how long the newest request stays (J. Little, Operations Research 9, 1961).
    """

    def __init__(self, budget_seconds: float = math.inf, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = budget_seconds * SHARE, clock
        self._taken = 0.0
        self._count = 0
        self._typical = 0.0
        self._running: dict[int, tuple[float, float]] = {}
        self._since = 0.0
        self._busy = self._done = self._turn = self._ended = 0.0
        self.stretch = 1.0

    @property
    def drain_seconds(self) -> float:
        """How long until all that was taken on is answered."""
        stretch, taken = self.stretch, self._taken
        if self._running:
            now = self._clock()
            taken -= sum(min((now - since) / stretch, seconds) for since, seconds in self._running.values())
        return taken * stretch if taken > 0 else 0.0

    def check(self, seconds: float | None = None, *, waited: float = 0.0) -> None:
        """QueueFull where work of so many seconds (as much as is usual, where None) cannot be answered in time.

        `waited` is how long it has been here. Where nothing is at hand there is room for anything.
        """
        if self._is_beyond(self._typical if seconds is None else seconds, waited):
            raise QueueFull(TOO_MUCH, self.drain_seconds)

    @property
    def is_full(self) -> bool:
        """Whether work as usual could not be answered in time."""
        return self._is_beyond(self._typical, 0.0)

    def _is_beyond(self, seconds: float, waited: float) -> bool:
        before = max(waited, min(self._turn, TURN_SHARE * self._limit))
        return self._count > 0 and before + self.drain_seconds + seconds * self.stretch > self._limit

    def take(self, seconds: float) -> None:
        """Work is taken on."""
        if not self._count:
            self._taken, self._since = 0.0, self._clock()
        self._count += 1
        self._taken += seconds
        self._typical += (seconds - self._typical) / 16

    def drop(self, count: int, seconds: float) -> None:
        """So many requests, of so many seconds of work together, were let go undone."""
        self._count -= count
        self._taken -= seconds

    def finish(self, count: int, seconds: float, *, inline: bool = True) -> None:
        """They were done and answered; `inline` where that was a turn of the event loop, which waited for it."""
        self.drop(count, seconds)
        now = self._clock()
        under_work, self._since = now - self._since, now
        self._turn = under_work if inline else 0.0
        if not seconds:
            return  # nobody knows yet what it takes
        kept, self._ended = math.exp((self._ended - now) / MEMORY), now
        self._busy = kept * self._busy + min(under_work, PAUSE + seconds)
        self._done = kept * self._done + seconds
        self.stretch = min(max(self._busy / self._done, STRETCH[0]), STRETCH[1])

    def begin(self, key: int, seconds: float) -> None:
        """A batch of so many seconds of work runs beside the event loop from now on, until `end`."""
        self._running[key] = (self._clock(), seconds)

    def end(self, key: int) -> None:
        self._running.pop(key, None)
