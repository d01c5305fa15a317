"""What a supervisor hands to a worker, over the fork."""

from __future__ import annotations

import mmap
import socket
from dataclasses import dataclass
from pathlib import Path

# A worker that cannot start for a reason that another start would not mend.
START_FAILED = 3
# Beyond --drain-seconds a worker is given this to take itself down before it is killed.
GRACE_SECONDS = 3.0

# Of a seat whose worker takes no connections.
ABSENT = -1
# Each worker writes its own cache line.
_STRIDE = 8


class StartError(Exception):
    """The service cannot start: one plain line that says why."""


class Connections:
    """How many connections the worker on each seat holds, in memory that all processes share.

    Made before the fork. Whoever sits on a seat writes its number; the supervisor clears that of a dead one.
    """

    def __init__(self, seats: int) -> None:
        self._held = memoryview(mmap.mmap(-1, seats * _STRIDE * 8)).cast("q")
        self._seats = range(seats)
        for seat in self._seats:
            self.leave(seat)

    def put(self, seat: int, held: int) -> None:
        self._held[seat * _STRIDE] = held

    def leave(self, seat: int) -> None:
        """The seat takes no connections."""
        self._held[seat * _STRIDE] = ABSENT

    def of(self, seat: int) -> int:
        return int(self._held[seat * _STRIDE])

    def least_beside(self, seat: int) -> int | None:
        """The fewest that another seat holds; None where no other takes any."""
        others = [held for other in self._seats if other != seat and (held := self.of(other)) != ABSENT]
        return min(others, default=None)


@dataclass(frozen=True, slots=True)
class Place:
    """One worker's seat and the handles that it inherits. `folder` is the service's own and goes with it."""

    seat: int
    replica: str
    replacement: bool
    folder: Path
    listener: socket.socket
    lifeline: int  # a pipe that ends with the supervisor
    supervisor: socket.socket  # what `preparing.Preparing` speaks through
    connections: Connections

    @property
    def metrics(self) -> Path:
        return metrics_folder(self.folder)

    @property
    def start_error(self) -> Path:
        return start_error_file(self.folder)


def metrics_folder(folder: Path) -> Path:
    return folder / "metrics"


def start_error_file(folder: Path) -> Path:
    """Where a worker that ends with START_FAILED has written why, as one line."""
    return folder / "start-error"
