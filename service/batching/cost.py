"""What work will take: the measured time of a call by its rows, and what a worker has promised to do.

Pure arithmetic in constant memory; knows nothing of queues or models.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# Weight that a batch keeps when the next one is seen: the last few dozen count.
DECAY = 0.95
# Before so many batches nothing is predicted: the first calls of a module are its slowest.
LEARNING = 4
# A call that took this many times what was predicted was held up by something else, and teaches that much less.
OUTLIER = 8.0
# Asking for a thread's CPU time is a system call of many microseconds.
SAMPLE_SECONDS = 0.05
FEWEST = 10
MOST_OVERHEAD = 0.002


class Cost:
    """Seconds of a call as fixed + rows * per_row: least squares over calls whose weights decay geometrically.

    The normal equations of a weighted simple regression (Draper and Smith, Applied Regression Analysis, 2.5); where
    all calls had much the same rows, proportional beyond their mean and flat below.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, rows: int, seconds: float) -> None:
        """Learn from one call."""
        predicted = self.predict(rows)
        if predicted is not None:
            seconds = min(seconds, OUTLIER * predicted)
        self.calls += 1
        if self.calls <= LEARNING // 2:
            return
        for name, value in (("_n", 1.0), ("_x", rows), ("_y", seconds), ("_xx", rows * rows), ("_xy", rows * seconds)):
            setattr(self, name, DECAY * getattr(self, name) + value)

    def predict(self, rows: int) -> float | None:
        """Seconds that a call of so many rows will take; None before enough were seen."""
        if self.calls < LEARNING:
            return None
        fixed, per_row = self._line()
        return fixed + rows * per_row

    @property
    def per_row(self) -> float:
        """Seconds of one row more; 0 before enough calls were seen."""
        return self._line()[1] if self.calls >= LEARNING else 0.0

    def _line(self) -> tuple[float, float]:
        mean_x, mean_y = self._x / self._n, self._y / self._n
        spread = self._xx / self._n - mean_x * mean_x
        if spread <= 1e-3 * mean_x * mean_x:
            return 0.0, mean_y / mean_x if mean_x else 0.0
        slope = (self._xy / self._n - mean_x * mean_y) / spread
        slope = min(max(slope, 0.0), mean_y / mean_x)
        return max(mean_y - slope * mean_x, 0.0), slope


class Load:
    """Seconds of work that one worker has taken on and not done, over all of its versions: they share its core.

    `overhead` is what a request costs beside its model call - reading, parsing, answering, and refusing others
    meanwhile - measured as the CPU time of the event loop's thread.
    """

    def __init__(
        self, cpu: Callable[[], float] = time.thread_time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = 0.0
        self.overhead = 0.0
        self._cpu, self._clock = cpu, clock
        self._cpu_seen, self._seen = cpu(), clock()
        self._requests, self._on_loop = 0, 0.0

    def take(self, seconds: float) -> None:
        self.seconds += seconds

    def done(self, seconds: float) -> None:
        # Sums of floats do not come back to 0 by themselves.
        self.seconds = self.seconds - seconds if self.seconds > seconds + 1e-9 else 0.0

    def answered(self, requests: int, on_loop: float) -> None:
        """So many requests have been scored, with `on_loop` seconds of model calls in the loop's own thread."""
        self._requests += requests
        self._on_loop += on_loop
        now = self._clock()
        if now - self._seen < SAMPLE_SECONDS:
            return
        cpu = self._cpu()
        # What the thread does without requests is theirs where they are few.
        if self._requests >= FEWEST:
            each = max(cpu - self._cpu_seen - self._on_loop, 0.0) / self._requests
            self.overhead += (min(each, MOST_OVERHEAD) - self.overhead) / 4
        self._cpu_seen, self._seen, self._requests, self._on_loop = cpu, now, 0, 0.0
