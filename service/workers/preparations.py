"""The supervisor's side of preparing: one low-priority process at a time, its results shared by all workers.

asked ──▶ waiting ──▶ running ──▶ ready, held by seats ──▶ released by the last: removed
             │    │                                    └──▶ failed: the reason to every asker
             │    └── comes by no core: begun anew, giving way less
             └── every asker gone: dropped, killed
"""

from __future__ import annotations

import itertools
import logging
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from service import logs
from service.workers.children import Child
from service.workers.preparer import Prepare, run
from service.workers.preparing import MAX_MESSAGE, Key
from service.workers.starving import Starving

STOPPING = {"reason": "the service is stopping"}


@dataclass(slots=True, eq=False)
class Job:
    """One version to be made ready in `folder`; `seats` wait for it, and hold it once it is ready."""

    key: Key
    folder: Path
    seats: set[int] = field(default_factory=set)
    child: Child | None = None
    starved: bool = False  # and killed for it
    hurried: bool = False

    @property
    def aside(self) -> Path:
        return self.folder.with_suffix(".part")

    @property
    def reason_file(self) -> Path:
        return self.folder.with_suffix(".reason")


class Preparations:
    """`fork(work)` makes a process; `answer(seat, message)` tells a worker. Used by the supervisor alone."""

    def __init__(
        self,
        prepare: Prepare,
        artifacts: Path,
        folder: Path,
        *,
        fork: Callable[[Callable[[], int]], Child],
        answer: Callable[[int, dict[str, Any]], None],
        starving: Callable[[int], bool] | None = None,
    ) -> None:
        self._prepare, self._artifacts, self._folder = prepare, artifacts, folder
        self._fork, self._answer = fork, answer
        self._starving = starving or Starving()
        self._numbers = itertools.count(1)
        self._waiting: dict[Key, Job] = {}
        self._running: Job | None = None
        self._ready: dict[Key, Job] = {}
        self._stopping = False

    @property
    def running(self) -> bool:
        """Whether a preparer runs, be it one that was killed and has not been seen to end."""
        return self._running is not None

    def ask(self, seat: int, key: Key) -> None:
        if self._stopping:
            return self._answer(seat, {"key": key, **STOPPING})
        if key in self._ready:
            self._ready[key].seats.add(seat)
            self._answer(seat, {"key": key, "folder": str(self._ready[key].folder)})
            return
        running = self._running
        # Without askers it has been killed, and may not yet know.
        if running is None or running.key != key or not running.seats:
            running = self._waiting.setdefault(key, Job(key, self._folder / str(next(self._numbers))))
        running.seats.add(seat)
        self.look()

    def release(self, seat: int, key: Key) -> None:
        """The seat is done with what it holds, or no longer wants what it asked for."""
        for jobs in (self._waiting, self._ready):
            if key in jobs:
                self._leave(seat, jobs[key])
        if self._running is not None and self._running.key == key:
            self._leave(seat, self._running)

    def drop(self, seat: int) -> None:
        """The seat's worker is gone, and all that it held or asked for with it."""
        for job in [*self._waiting.values(), *self._ready.values()]:
            self._leave(seat, job)
        if self._running is not None:
            self._leave(seat, self._running)

    def stop(self) -> None:
        """Nothing more is made ready; what is held stays for its holders."""
        self._stopping = True
        abandoned = [*self._waiting.values(), *([self._running] if self._running else [])]
        for job in abandoned:
            self._tell(job, STOPPING)
            for seat in list(job.seats):
                self._leave(seat, job)

    def look(self) -> None:
        """Take note of a preparer that has ended, and start the next."""
        job = self._running
        if job is not None and job.child is not None:
            if job.child.poll() is None:
                self._look_after(job, job.child)
            else:
                self._running = None
                self._finish(job)
        while self._running is None and self._waiting:
            job = self._waiting.pop(next(iter(self._waiting)))
            try:
                job.aside.mkdir(parents=True)
                job.child = self._fork(partial(self._work, job))
                self._running = job
                self._starving(job.child.pid)  # from here on
            except OSError as error:
                self._tell(job, {"reason": f"no process could be started to prepare it: {error.strerror or error}"})
                _remove(job)

    def _look_after(self, job: Job, child: Child) -> None:
        """Whoever waits for a version, perhaps to roll back to it, is not to wait until the machine is idle."""
        gives_way = bool(self._ready) and not job.hurried
        if gives_way and not job.starved and self._starving(child.pid):
            job.starved = True
            child.send(signal.SIGTERM)

    def _leave(self, seat: int, job: Job) -> None:
        job.seats.discard(seat)
        if job.seats:
            return
        if job is self._running:
            assert job.child is not None
            job.child.send(signal.SIGTERM)  # it holds nothing but its folder, which goes when it has ended
        elif self._waiting.get(job.key) is job:
            del self._waiting[job.key]
        elif self._ready.get(job.key) is job:
            del self._ready[job.key]
            _remove(job)

    def _finish(self, job: Job) -> None:
        assert job.child is not None
        code = job.child.returncode
        if not job.seats:
            _remove(job)
        elif job.starved and code is not None and code < 0:
            logs.event("preparing starved, begun anew", level=logging.WARNING, version=job.key[0])
            _remove(job)
            job.starved, job.hurried = False, True
            self._waiting = {job.key: job, **self._waiting}
        elif code == 0:
            job.aside.rename(job.folder)
            self._ready[job.key] = job
            self._tell(job, {"folder": str(job.folder)})
        else:
            reason = _why(job, code)
            logs.event("preparing failed", level=logging.ERROR, version=job.key[0], exit=code, error=reason)
            _remove(job)
            self._tell(job, {"reason": reason})

    def _tell(self, job: Job, answer: dict[str, Any]) -> None:
        for seat in sorted(job.seats):
            self._answer(seat, {"key": job.key, **answer})

    def _work(self, job: Job) -> int:
        version, revision = job.key
        artifact, give_way = self._artifacts / version, bool(self._ready)  # before the first, nobody can be answered
        return run(
            self._prepare, artifact, job.aside, revision, job.reason_file, give_way=give_way, hurried=job.hurried
        )


def _why(job: Job, code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "the preparing process was killed: out of memory?"
    if code is not None and code < 0:
        return f"the preparing process died of {signal.Signals(-code).name}"
    try:
        return " ".join(job.reason_file.read_text("utf-8").split())[: MAX_MESSAGE // 8]
    except OSError:
        return f"the preparing process ended with exit code {code}; its own lines say why"


def _remove(job: Job) -> None:
    for path in (job.folder, job.aside):
        shutil.rmtree(path, ignore_errors=True)
    job.reason_file.unlink(missing_ok=True)
