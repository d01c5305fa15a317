"""A preparer that comes by no core is begun anew, giving way less; told by hand-made children and clocks."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.workers.children import Child
from service.workers.preparations import Preparations
from service.workers.starving import LOOK_SECONDS, Starving


class Hand:
    """A clock and what a process has used, moved by hand."""

    def __init__(self) -> None:
        self.now, self.used, self.would_run = 100.0, 1.0, True
        self.starving = Starving(usage=lambda _: (self.used, self.would_run), clock=lambda: self.now)

    def after(self, seconds: float, used: float) -> bool:
        self.now, self.used = self.now + seconds, self.used + used
        return self.starving(7)


def test_what_comes_by_no_core_for_a_while_starves():
    hand = Hand()
    assert not hand.after(0, 0)
    assert not hand.after(LOOK_SECONDS / 2, 0)
    assert hand.after(LOOK_SECONDS / 2, 0.03 * LOOK_SECONDS)


def test_what_comes_by_a_part_of_a_core_lives():
    hand = Hand()
    hand.after(0, 0)
    assert not hand.after(LOOK_SECONDS, 0.1 * LOOK_SECONDS)


def test_what_waits_for_a_disk_does_not_starve():
    hand = Hand()
    hand.after(0, 0)
    hand.would_run = False
    assert not hand.after(LOOK_SECONDS, 0)


def test_a_process_that_is_gone_does_not_starve():
    assert not Starving()(2**22 + 1)


class Forked(Child):
    """A child that is none: it ends with what it is told to, or by a signal."""

    def poll(self) -> int | None:
        return self.returncode

    def send(self, number: signal.Signals) -> None:
        self.returncode = -number


class World:
    """Preparations of which no process is made; those that starve are named by pid."""

    def __init__(self, folder: Path) -> None:
        self.starving: set[int] = set()
        self.children: list[Forked] = []
        self.answers: list[dict[str, Any]] = []
        self.made = Preparations(
            lambda *_: None,
            folder,
            folder / "prepared",
            fork=self.fork,
            answer=lambda _, message: self.answers.append(message),
            starving=lambda pid: pid in self.starving,
        )

    def fork(self, _: Callable[[], int]) -> Child:
        self.children.append(Forked(len(self.children)))
        return self.children[-1]

    def end(self, code: int) -> None:
        self.children[-1].returncode = code
        self.made.look()

    def ask(self, version: str) -> None:
        self.made.ask(0, (version, 0))


def test_a_starved_preparer_is_begun_anew_and_answers_who_asked(tmp_path: Path):
    world = World(tmp_path)
    world.ask("v1")
    world.end(0)
    world.ask("v2")
    world.ask("v3")
    world.starving = {1, 2}
    world.made.look()
    assert world.children[1].returncode == -signal.SIGTERM
    world.made.look()
    world.made.look()
    assert world.children[2].returncode is None  # it is not looked at a second time
    world.end(0)
    assert [answer["key"][0] for answer in world.answers] == ["v1", "v2"]
    assert "folder" in world.answers[1]


def test_the_first_preparer_gives_way_to_nobody_and_is_left_alone(tmp_path: Path):
    world = World(tmp_path)
    world.ask("v1")
    world.starving = {0}
    world.made.look()
    assert world.children[0].returncode is None


def test_one_killed_for_its_memory_is_not_begun_anew(tmp_path: Path):
    world = World(tmp_path)
    world.ask("v1")
    world.end(0)
    world.ask("v2")
    world.end(-signal.SIGKILL)
    assert "out of memory" in world.answers[1]["reason"]
    assert len(world.children) == 2
