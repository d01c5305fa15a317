"""Tends the plans: one worker of all replicas at a time, by a lease in the store.

The lease keeps the others from doing the same work. That a plan acts once does not hang on it: a move is carried out in
one transaction, and only on the plan and the epoch that it was decided by.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Protocol, TypeVar

from service import logs
from service.experiments.course import adopt, carry_out, course_of, signs_of
from service.experiments.guardrails import Heard
from service.experiments.plans import Course, decide
from service.experiments.watch import Watch
from service.ids import new_id
from service.state import Document, StateError, Transaction
from service.state.plans import active_plans, add_counts, fold_counts, take_lease

T = TypeVar("T")

LOOK_SECONDS = 1.0
LEASE_SECONDS = 3.0


class View(Protocol):
    """What the control plane tells, and takes."""

    @property
    def document(self) -> Document: ...
    async def change(self, edit: Callable[[Transaction], T]) -> T: ...
    async def read(self, view: Callable[[Transaction], T]) -> T: ...
    def apply(self, document: Document) -> None: ...


class Hearing(Protocol):
    """What the experiment's report says of a version now."""

    async def __call__(self, experiment: str, version: str) -> Heard: ...


async def hear_nothing(experiment: str, version: str) -> Heard:
    """Where there is no report: no lift, so nothing is ever promoted."""
    return Heard()


class Planner:
    """An async context manager: inside it this worker counts for the plans, and tends them when it has the lease.

    `clock` gives seconds since 1970.
    """

    def __init__(
        self, view: View, watch: Watch, *, hear: Hearing = hear_nothing, clock: Callable[[], float] = time.time
    ) -> None:
        self._view, self._watch, self._hear, self._clock = view, watch, hear, clock
        self._name = new_id()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Planner:
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with suppress(StateError):
            await self._flush()

    async def look(self) -> None:
        """Count for the running experiment's plan, and tend every plan whose lease is free or this worker's."""
        courses = [course_of(row) for row in await self._view.read(active_plans)]
        running = next((one for one in courses if one.experiment == self._view.document.experiment), None)
        if running is None:
            self._watch.follow(None)
        else:
            self._watch.follow(running.experiment, (running.plan.guardrails.p99_ms or float("inf")) / 1e3)
        await self._flush()
        for course in courses:
            await self._tend(course)

    async def _tend(self, seen: Course) -> None:
        now, lease = self._clock(), f"plan/{seen.experiment}"

        def claim(change: Transaction) -> tuple[Course | None, int]:
            if not take_lease(change, lease, self._name, now=now, seconds=LEASE_SECONDS):
                return None, 0
            fold_counts(change, seen.experiment, now)
            return adopt(change, seen), change.document().epoch

        course, epoch = await self._view.change(claim)
        if course is None:
            return
        current, heard = course, Heard()
        if course.plan.guardrails.ctr_margin is not None or course.is_due(now):
            heard = await self._hear(course.experiment, course.plan.version)
        signs = await self._view.read(lambda view: signs_of(view, current, heard, now))
        move = decide(course, signs, now)
        if move.act == "stay" and (move.state, move.why) == (course.state, course.why):
            return

        def act(change: Transaction) -> tuple[Course, Document] | None:
            # Judging may have outlasted the lease; whoever has taken it since acts in this one's place.
            if not take_lease(change, lease, self._name, now=self._clock(), seconds=LEASE_SECONDS):
                return None
            return carry_out(change, current, move, epoch, self._clock())

        done = await self._view.change(act)
        if done is not None:
            moved, document = done
            did = {"act": move.act, "state": moved.state, "why": moved.why, "epoch": document.epoch}
            logs.event("plan", experiment=moved.experiment, version=moved.plan.version, did=did)
            self._view.apply(document)

    async def _flush(self) -> None:
        counts = self._watch.take()
        if not counts:
            return
        try:
            await self._view.change(lambda change: add_counts(change, counts))
        except StateError:
            self._watch.put_back(counts)
            raise

    async def _follow(self) -> None:
        failing = False
        while True:
            try:
                await self.look()
                failing = False
            except StateError:
                pass  # the control plane tells of a lost store
            except Exception as error:  # noqa: BLE001 - a plan must not be left alone in silence, whatever was met
                if not failing:
                    logs.event("tending the plans failed", level=logging.ERROR, exc_info=error)
                failing = True
            await asyncio.sleep(LOOK_SECONDS)
