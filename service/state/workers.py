"""What the workers tell the store of themselves, and what that says of a version as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# A worker not heard of for so long is taken for dead; it tells of itself five times as often.
LIVE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class VersionState:
    """One version in one worker. `asked` is the revision whose wish to load it this state answers, `catalog` the
    catalog revision it has; beside `ready`, `error` says why it has not the one that was asked for."""

    state: str  # available | loading | ready | unloading | failed
    error: str | None = None
    asked: int = 0
    catalog: int = 0

    def refuses(self, catalog: int) -> bool:
        """Whether the version goes on without the catalog revision that was asked for."""
        return self.state == "ready" and self.error is not None and self.catalog != catalog


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker as it last told of itself. Until it is `accepting` it takes no connections and holds nothing up."""

    replica: str
    worker: str
    pid: int
    accepting: bool
    epoch: int
    revision: int
    since: float  # when it got this epoch, seconds since 1970
    seen: float  # when it was last heard of, seconds since 1970
    states: Mapping[str, VersionState] = field(default_factory=dict)


def is_ready(worker: Worker, version: str) -> bool:
    """Whether the worker has told that the version is ready in it."""
    found = worker.states.get(version)
    return found is not None and found.state == "ready"


def overall(version: str, workers: Iterable[Worker]) -> VersionState:
    """The version over all accepting workers: failed if it failed in any, ready only if it is in each."""
    told = [worker.states.get(version, VersionState("available")) for worker in workers if worker.accepting]
    for state in told:
        if state.state == "failed":
            return state
    states = {state.state for state in told}
    for moving in ("loading", "unloading"):
        if moving in states:
            return VersionState(moving)
    if states == {"ready"}:
        return VersionState("ready")
    # Ready here and unknown there: a worker that has yet to see the wish to load it.
    return VersionState("loading" if "ready" in states else "available")


def replicas(workers: Iterable[Worker]) -> dict[str, tuple[int, float]]:
    """Of each living replica the epoch that all its workers have, and since when (seconds since 1970)."""
    found: dict[str, tuple[int, float]] = {}
    for worker in workers:
        epoch, since = found.get(worker.replica, (worker.epoch, worker.since))
        found[worker.replica] = min(epoch, worker.epoch), max(since, worker.since)
    return found
