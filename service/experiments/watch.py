"""What a plan's guardrails count on this worker: requests, errors and slow answers of each arm, while a plan runs.

Counted by the arm that the split assigned, whoever answered; written a second late at most, in slots of time, so that
the last minute can be told from all that was before.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from service.state.plans import SLOT_SECONDS, ArmSlot, Counts


class Watch:
    """Follows one experiment; costs nothing where none has a plan. `clock` gives seconds since 1970."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._experiment: str | None = None
        self._slow = float("inf")
        self._counts: dict[ArmSlot, Counts] = {}

    def follow(self, experiment: str | None, slow_seconds: float = float("inf")) -> None:
        """Count what belongs to an experiment from now on; None: nothing."""
        self._experiment, self._slow = experiment, slow_seconds

    def __call__(self, experiment: str, epoch: int, version: str, reason: str, status: int, seconds: float) -> None:
        """One request was answered with `status`; what the client did wrong says nothing of a version."""
        if experiment != self._experiment or reason != "split" or (status != 200 and status < 500):
            return
        slot = int(self._clock() / SLOT_SECONDS) * SLOT_SECONDS
        key = ArmSlot(experiment, epoch, version, slot)
        requests, errors, slow = self._counts.get(key, (0, 0, 0))
        self._counts[key] = Counts(requests + 1, errors + (status >= 500), slow + (seconds > self._slow))

    def take(self) -> dict[ArmSlot, Counts]:
        """What was counted since the last time."""
        counts, self._counts = self._counts, {}
        return counts

    def put_back(self, counts: dict[ArmSlot, Counts]) -> None:
        """What was taken could not be written."""
        for key, more in counts.items():
            found = self._counts.get(key, Counts(0, 0, 0))
            self._counts[key] = Counts(*(a + b for a, b in zip(found, more, strict=True)))
