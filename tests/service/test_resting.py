"""Work that rests: it comes to its end by less than a core, and ends with whoever makes it rest."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from service.workers.resting import LOOK, REST, WORK, Others, run_resting, used_beside
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


def share_of_a_core(process: psutil.Process) -> float:
    before, since = sum(process.cpu_times()[:2]), time.monotonic()
    time.sleep(1.0)
    return (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - since)


def test_it_rests_the_most_of_the_time_while_others_work(endless: tuple[int, psutil.Process]):
    pid, child = endless
    others = [os.fork() or forever() for _ in range(max(1, (os.cpu_count() or 1) // 2))]
    time.sleep(2 * LOOK)
    share = share_of_a_core(child)
    for one in (*others, pid):
        os.kill(one, signal.SIGKILL)
        end_of(one)
    assert 0.0 < share < 2.2 * WORK / (WORK + REST)  # without rests it had a core of its own


@pytest.mark.parametrize(("used", "busy"), [(0.0, False), (1.0, False), (2.0, True), (10.0, True)])
def test_others_are_busy_where_they_use_a_share_of_the_cores(used: float, busy: bool):
    looks, times = iter([(50.0, 30.0), (60.0, 30.0 + used)]), iter([0.0, LOOK / 2, LOOK])
    others = Others(lambda: next(looks), lambda: next(times))
    assert others.are_busy()  # nothing is known yet
    assert others.are_busy() is busy


def test_what_others_use_is_not_the_process_own():
    process = psutil.Process()
    before, since = used_beside(process), time.monotonic()
    while time.monotonic() < since + 0.3:
        pass
    whole, others = (after - old for after, old in zip(used_beside(process), before, strict=True))
    assert 0.2 < whole < 2 * 0.3 * (os.cpu_count() or 1)
    assert others < whole - 0.1


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
