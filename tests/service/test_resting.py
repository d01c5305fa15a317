"""Work that rests: it comes to its end by less than a core, and ends with whoever makes it rest."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from service.workers.resting import REST, WORK, run_resting
from service.workers.starving import usage


def start(work: Callable[[], int]) -> int:
    """The pid of a process that makes `work` rest."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = run_resting(work)
        finally:
            os._exit(code)
    return pid


def end_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def forever() -> int:
    while True:
        pass


@pytest.fixture
def endless() -> tuple[int, psutil.Process]:
    """A process, and its child that would work for ever."""
    pid = start(forever)
    process = psutil.Process(pid)
    while not process.children():
        time.sleep(0.005)
    return pid, process.children()[0]


@pytest.mark.parametrize("code", [0, 1, 7])
def test_the_exit_code_is_that_of_the_work(code: int):
    assert end_of(start(lambda: code)) == code


def test_work_that_raises_has_failed():
    assert end_of(start(lambda: 1 // 0)) == 1


def test_it_works_some_of_the_time_and_rests_the_most(endless: tuple[int, psutil.Process]):
    pid, child = endless
    before, since = sum(child.cpu_times()[:2]), time.monotonic()
    time.sleep(1.0)
    share = (sum(child.cpu_times()[:2]) - before) / (time.monotonic() - since)
    os.kill(pid, signal.SIGKILL)
    assert end_of(pid) == -signal.SIGKILL
    assert 0.02 < share < 3 * WORK / (WORK + REST)


def test_the_work_ends_with_who_makes_it_rest(endless: tuple[int, psutil.Process]):
    pid, child = endless
    os.kill(pid, signal.SIGKILL)
    end_of(pid)
    psutil.wait_procs([child], timeout=5)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_told_to_end_it_leaves_nothing_behind(endless: tuple[int, psutil.Process]):
    pid, child = endless
    os.kill(pid, signal.SIGTERM)
    assert end_of(pid) == -signal.SIGKILL
    assert not child.is_running()


def test_a_signal_that_ends_the_work_ends_who_makes_it_rest(endless: tuple[int, psutil.Process]):
    pid, child = endless
    child.kill()
    assert end_of(pid) == -signal.SIGKILL


def test_what_its_work_has_used_is_seen_from_outside(endless: tuple[int, psutil.Process]):
    pid, _ = endless
    time.sleep(0.5)
    used, would_run = usage(pid)
    os.kill(pid, signal.SIGKILL)
    end_of(pid)
    assert used > 0.02
    assert would_run


def test_many_short_works_all_end(tmp_path: Path):
    pids = [start(lambda n=n: (tmp_path / str(n)).touch() or 0) for n in range(30)]  # type: ignore[misc,func-returns-value]
    assert [end_of(pid) for pid in pids] == [0] * 30
    assert len(list(tmp_path.iterdir())) == 30
