"""What a call takes: measured, as seconds = fixed + each * rows. Pure arithmetic in constant memory."""

from __future__ import annotations

import math

# Weight that a call keeps when the next one is seen: the last 50 or so count.
DECAY = 0.98
# Before so many calls nothing is known: the first ones of a module, which specialises itself, are its slowest.
LEARNING = 8
# How far one call may lie from what was expected and still be believed.
OUTLIER = 4.0


class Cost:
    """Least squares over the calls seen, whose weights decay geometrically (Draper and Smith, Applied Regression
    Analysis, 3rd ed., 9.2), in five sums.

    What disturbs a call makes it slower, never quicker: one far slower than expected counts as OUTLIER times the
    expected, one far quicker makes the estimate start afresh.
    """

    def __init__(self) -> None:
        self.fixed = self.per_row = 0.0
        self._calls = 0
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)  # weight, rows, rows * rows, seconds, rows * seconds

    @property
    def is_known(self) -> bool:
        return self._calls >= LEARNING

    def predict(self, rows: int) -> float:
        """Seconds that a call of so many rows will take; it means something once it is known."""
        return self.fixed + rows * self.per_row

    def add(self, rows: int, seconds: float) -> None:
        """Learn from one call. Numbers that cannot be teach nothing."""
        if rows <= 0 or not 0 < seconds < math.inf:
            return
        decay, expected = DECAY, self.predict(rows)
        if self._calls and seconds < expected / OUTLIER:
            decay = 0.0
        elif self.is_known:
            seconds = min(seconds, OUTLIER * expected)
        self._calls += 1
        weight, x, xx, y, xy = (decay * one for one in self._sums)
        weight, x, xx, y, xy = weight + 1, x + rows, xx + rows * rows, y + seconds, xy + rows * seconds
        self._sums = (weight, x, xx, y, xy)
        spread = weight * xx - x * x
        if spread <= 1e-3 * weight * xx:  # all of one size, so that nothing tells the two parts: half and half
            self.fixed, self.per_row = y / weight / 2, y / x / 2
            return
        self.per_row = max(0.0, (weight * xy - x * y) / spread)
        self.fixed = (y - self.per_row * x) / weight
        if self.fixed < 0:
            self.fixed, self.per_row = 0.0, xy / xx
