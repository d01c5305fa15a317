"""Preparing for all workers: one process at a time, one result for all, gone with its last holder."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.service.puppets import Puppets, puppets


@pytest.fixture(name="world")
def _world(tmp_path: Path) -> Iterator[Puppets]:
    with puppets(tmp_path) as world:
        yield world


def test_workers_that_ask_for_one_version_share_one_run_and_one_folder(world: Puppets):
    world.version("v1", "wait")
    first, second = world.ask(0, "v1"), world.ask(1, "v1")
    world.until(lambda: world.runs() == ["v1"])
    world.let_go("v1")
    folder = first.result(10)
    assert second.result(10) == folder == world.ask(1, "v1").result(10)
    assert (folder / "halves").read_text() == "v1 7"
    assert world.runs() == ["v1"]


def test_a_folder_goes_with_its_last_holder(world: Puppets):
    world.version("v1", "fill")
    folder = world.ask(0, "v1").result(10)
    world.ask(1, "v1").result(10)
    world.ask(1, "v1").result(10)
    world.release(0, "v1")
    world.release(1, "v1")
    world.version("v2", "fill")
    world.ask(0, "v2").result(10)  # whatever was said before has been heard by now
    assert folder.exists()
    world.release(1, "v1")
    world.until(lambda: not folder.exists())
    world.ask(0, "v1").result(10)
    assert world.runs() == ["v1", "v2", "v1"]


def test_a_dead_worker_holds_nothing(world: Puppets):
    world.version("v1", "fill")
    folder = world.ask(0, "v1").result(10)
    os.kill(world.pid(0), signal.SIGKILL)
    world.until(lambda: not folder.exists())


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("refuse", "model.pt: the file is missing"),
        ("raise", "ZeroDivisionError: division by zero"),
        ("die", "the preparing process was killed: out of memory?"),
    ],
)
def test_a_failure_is_told_in_one_line_and_tried_again_when_asked_again(world: Puppets, what: str, reason: str):
    world.version("v1", what)
    assert world.ask(0, "v1").result(10) == ("error", reason)
    assert world.prepared() == []
    world.version("v1", "fill")
    assert world.ask(0, "v1").result(10).is_dir()


def test_one_at_a_time_in_order_of_asking(world: Puppets):
    for version in ("v1", "v2"):
        world.version(version, "wait")
    first = world.ask(0, "v1")
    world.until(lambda: world.runs() == ["v1"])
    second = world.ask(1, "v2")
    world.let_go("v2")
    assert not second.done()
    assert world.runs() == ["v1"]
    world.let_go("v1")
    assert first.result(10) != second.result(10)
    assert world.runs() == ["v1", "v2"]


def test_a_preparer_is_killed_when_nobody_waits_for_it_any_more(world: Puppets):
    for version, what in (("v1", "wait"), ("v2", "fill")):
        world.version(version, what)
    asked = world.ask(0, "v1")
    world.until(lambda: preparers(world))
    [preparer] = preparers(world)
    next_one = world.ask(1, "v2")
    os.kill(world.pid(0), signal.SIGKILL)
    assert asked.result(10) == "died"
    assert next_one.result(10).is_dir()
    assert not preparer.is_running()
    assert world.runs() == ["v1", "v2"]


def test_the_end_of_the_service_ends_preparing_and_leaves_nothing(world: Puppets):
    for version, what in (("v1", "fill"), ("v2", "wait")):
        world.version(version, what)
    world.ask(0, "v1").result(10)
    asked = world.ask(1, "v2")
    world.until(lambda: preparers(world))
    [preparer] = preparers(world)
    world.process.terminate()
    assert world.process.wait(10) == 0
    assert asked.result(10) in ("died", ("error", "the service is stopping"))
    assert not preparer.is_running()
    assert list((world.folder / "tmp").iterdir()) == []


def test_a_preparer_goes_when_the_supervisor_is_killed(world: Puppets):
    world.version("v1", "wait")
    world.ask(0, "v1")
    world.until(lambda: preparers(world))
    [preparer] = preparers(world)
    workers = psutil.Process(world.process.pid).children()
    world.process.kill()
    world.until(lambda: not preparer.is_running())
    for worker in workers:
        if worker.is_running():
            worker.kill()


def test_preparing_gives_way_once_there_is_something_to_answer_with(world: Puppets):
    for version in ("v1", "v2"):
        world.version(version, "wait")
        asked = world.ask(0, version)
        world.until(lambda: preparers(world))
        [preparer] = preparers(world)
        idle = os.sched_getscheduler(preparer.pid) == os.SCHED_IDLE
        assert idle == (version == "v2")
        assert (int(Path(f"/proc/{preparer.pid}/oom_score_adj").read_text()) > 0) == idle
        world.let_go(version)
        assert asked.result(10).is_dir()


def preparers(world: Puppets) -> list[psutil.Process]:
    files = world.folder.glob("tmp/twinrank-*/prepared/*.part/pid")
    return [psutil.Process(int(text)) for file in files if (text := file.read_text())]
