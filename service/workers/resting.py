"""Work that rests most of the time, so that whoever shares its cores waits for little of it.

The lowest priority is not enough: a kernel that does not preempt (PREEMPT_NONE, or lazily, as of Linux 6.12) lets what
runs go on to the end of its tick, 4 ms of 250 a second, though somebody wakes to answer. Beside half a load on two
cores the 99th percentile was then two to four times what it is alone; with these rests it was at most 1.2 times.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable

# Seconds at work, and at rest after them: a fifth of a core.
WORK, REST = 0.001, 0.004
_PR_SET_PDEATHSIG = 1


def run_resting(work: Callable[[], int]) -> int:
    """The exit code of `work` in a child of this process, which stops it and lets it go on in turns.

    The child ends with this process, however that ends, and at SIGTERM is waited for; where a signal ends it, this
    process ends by the same. To be called with no second thread running, and before the priority is lowered: this
    process has to wake in time.
    """
    follows, told = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        _live(work, parent, told)
    os.close(told)
    os.read(follows, 1)  # stopped before it follows, it would stay so where this process is killed
    os.close(follows)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
    code = _take_turns(child)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if code < 0:
        os.kill(parent, -code)
    return code


def _take_turns(child: int) -> int:
    while True:
        os.kill(child, signal.SIGSTOP)
        time.sleep(REST)
        os.kill(child, signal.SIGCONT)
        time.sleep(WORK)
        # Until here it has not been waited for, so that the number is still its own.
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)


def _live(work: Callable[[], int], parent: int, told: int) -> None:
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(told)
        if os.getppid() == parent:  # else it ended before it could be followed
            code = work()
    finally:
        os._exit(code)
