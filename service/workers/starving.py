"""Whether a process that gives way to all others comes to nothing by it.

Once it gives way so (SCHED_IDLE), nobody without privileges can lift it from there: on a machine that is busy all the
time it would need many minutes for a second of work.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

# Between two looks at what it has used, and the share of a core that is too little to live on.
LOOK_SECONDS, LEAST_SHARE = 10.0, 0.05


def usage(pid: int) -> tuple[float, bool]:
    """CPU seconds so far of a process and its children, and whether any would run now: what waits for a disk does not
    starve, what was made to rest may."""
    process = psutil.Process(pid)
    family = [process, *process.children()]
    would_run = any(one.status() in (psutil.STATUS_RUNNING, psutil.STATUS_STOPPED) for one in family)
    return sum(sum(one.cpu_times()[:2]) for one in family), would_run


class Starving:
    """Of one process at a time."""

    def __init__(
        self,
        *,
        usage: Callable[[int], tuple[float, bool]] = usage,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._usage, self._clock = usage, clock
        self._pid = 0
        self._since = self._used = 0.0

    def __call__(self, pid: int) -> bool:
        """To be asked again and again; False for a process that is gone."""
        now = self._clock()
        if pid == self._pid and now - self._since < LOOK_SECONDS:
            return False
        try:
            used, would_run = self._usage(pid)
        except psutil.Error:
            return False
        share = (used - self._used) / (now - self._since) if pid == self._pid else 1.0
        self._pid, self._since, self._used = pid, now, used
        return would_run and share < LEAST_SHARE
