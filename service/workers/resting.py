"""Work that rests most of the time, so that whoever shares its cores waits for little of it.

The lowest priority is not enough: a kernel that does not preempt (PREEMPT_NONE, or lazily, as of Linux 6.12) lets what
runs go on to the end of its tick, 4 ms of 250 a second, though somebody wakes to answer. Beside half a load on two
cores the 99th percentile was then two to four times what it is alone; with these rests 1.2 to 1.7 times. Where
nobody else is at work, there are none.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from functools import partial

import psutil

# Seconds at work, and at rest after them: a third of a core.
WORK, REST = 0.0005, 0.001
# Seconds between two looks at the machine, and the share of its cores that others use from which there are rests.
LOOK, BUSY = 0.2, 0.15
_PR_SET_PDEATHSIG = 1


def run_resting(work: Callable[[], int]) -> int:
    """The exit code of `work` in a child of this process, which stops it and lets it go on in turns.

    The child ends with this process, however that ends, and at SIGTERM is waited for; where a signal ends it, this
    process ends by the same. To be called while no second thread does more than wait, and before the priority is
    lowered: this process has to wake in time.
    """
    follows, told = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        _live(work, parent, told)
    os.close(told)
    os.read(follows, 1)  # stopped before it follows, it would stay so where this process is killed
    os.close(follows)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
    _take_turns(child)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        os.kill(parent, -code)
    return code


def _take_turns(child: int) -> None:
    """Until it has ended. It is not reaped here: while it may be signalled, the number has to be its own."""
    others = Others(partial(used_beside, psutil.Process(child)))
    while True:
        if others.are_busy():
            os.kill(child, signal.SIGSTOP)
            time.sleep(REST)
            os.kill(child, signal.SIGCONT)
            time.sleep(WORK)
        else:
            time.sleep(REST)
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return


class Others:
    """Whether the machine is at work for others; taken for busy until the first look.

    `look()` gives the CPU seconds of all cores so far, and those that others used.
    """

    def __init__(self, look: Callable[[], tuple[float, float]], clock: Callable[[], float] = time.monotonic) -> None:
        self._look, self._clock = look, clock
        self._busy = True
        self._seen, self._used = clock(), look()

    def are_busy(self) -> bool:
        now = self._clock()
        if now - self._seen >= LOOK:
            used = self._look()
            whole, work = (after - before for after, before in zip(used, self._used, strict=True))
            self._busy = work > BUSY * whole
            self._seen, self._used = now, used
        return self._busy


def used_beside(process: psutil.Process) -> tuple[float, float]:
    """CPU seconds of all cores so far, and those of them that other processes used."""
    times = psutil.cpu_times()
    whole = sum(times[:8])  # without those of guests, which are in the first ones already
    return whole, whole - times.idle - times.iowait - sum(process.cpu_times()[:2])


def _live(work: Callable[[], int], parent: int, told: int) -> None:
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(told)
        if os.getppid() == parent:  # else it ended before it could be followed
            code = work()
    finally:
        os._exit(code)
