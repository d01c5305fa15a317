"""Takes connections from the shared socket, so that every worker holds about as many.

pending ──▶ no sibling holds fewer ──▶ taken at once
        └─▶ one does: left to it for a moment, looked at again, taken anyway when it does not come
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
from collections.abc import Callable
from functools import partial

from service import logs
from service.workers.protocol import Protocol
from service.workers.seats import Connections

# Between two looks at a connection that was left to a sibling.
STEP_SECONDS = 0.001
# How long it is left there: for each connection that this worker holds more than the sibling, and at most. A sibling is
# late when its loop is busy or its core is another's, and a taken connection makes the load uneven for hours.
PATIENCE_EACH, LONGEST_PATIENCE = 0.005, 0.025
# A sibling that comes for nothing for so long hangs: one is taken at each look, until it moves or a second is quiet.
HANGS_SECONDS, FORGOTTEN_SECONDS = 0.1, 1.0
# At once, before the loop turns to others.
MOST_AT_ONCE = 64
# After the system had no handle or memory for a connection.
SCARCE_SECONDS = 1.0


class Acceptor:
    """Gives each accepted connection a protocol of `make`; used from one running event loop."""

    def __init__(
        self, listener: socket.socket, make: Callable[[], Protocol], connections: Connections, seat: int
    ) -> None:
        self._listener, self._make, self._connections, self._seat = listener, make, connections, seat
        self._held: set[socket.socket] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        # What the least loaded sibling held when a connection was left to it, since when this one has been left, and
        # since when it has come for none.
        self._least: int | None = None
        self._left_since = self._silent_since = self._left_last = 0.0

    def start(self) -> None:
        self._connections.put(self._seat, 0)
        self._rest()

    async def close(self) -> None:
        """Take no more; returns when what was taken has its protocol, which is then the server's to end."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._listener.fileno())
        self._connections.leave(self._seat)
        self._listener.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _rest(self) -> None:
        """Until something is pending."""
        self._timer, self._left_since = None, 0.0
        self._loop.add_reader(self._listener.fileno(), self._pending)

    def _pause(self, seconds: float) -> None:
        # The socket stays readable: with a reader on it the loop would spin.
        self._loop.remove_reader(self._listener.fileno())
        self._timer = self._loop.call_later(seconds, self._pending)

    def _pending(self) -> None:
        """Take what is this worker's to take; what is a sibling's only when that has had its time."""
        taken = 0
        try:
            while self._excess() <= 0 and taken < MOST_AT_ONCE:
                if not self._take():
                    return self._rest()
                taken += 1
            if not self._poll.poll(0):
                return self._rest()
            if self._excess() > 0 and self._is_overdue():
                self._take()
        except OSError as error:
            logs.event("cannot accept", level=logging.ERROR, error=str(error))
            return self._pause(SCARCE_SECONDS)
        self._pause(STEP_SECONDS)

    def _excess(self) -> int:
        """How many more this worker holds than the least loaded of its siblings."""
        least = self._connections.least_beside(self._seat)
        return 0 if least is None else len(self._held) - least

    def _is_overdue(self) -> bool:
        """Whether what is pending has been left to a sibling for long enough."""
        least, now = self._connections.least_beside(self._seat), self._loop.time()
        if least != self._least or now - self._left_last > FORGOTTEN_SECONDS:
            self._least, self._left_since, self._silent_since = least, now, now
        self._left_last, self._left_since = now, self._left_since or now
        left, patience = now - self._left_since, min(PATIENCE_EACH * self._excess(), LONGEST_PATIENCE)
        if left < patience and now - self._silent_since < HANGS_SECONDS:
            return False
        self._left_since = 0.0
        return True

    def _take(self) -> bool:
        """Accept one; whether there was one. OSError where the system has no room for it."""
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionAbortedError:
            return True
        connection.setblocking(False)
        self._held.add(connection)
        self._tell()
        task = self._loop.create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _serve(self, connection: socket.socket) -> None:
        def make() -> Protocol:
            protocol = self._make()
            protocol.on_lost = partial(self._lost, connection)
            return protocol

        try:
            await self._loop.connect_accepted_socket(make, connection)
        except OSError:  # gone before it was served
            connection.close()
            self._lost(connection)

    def _lost(self, connection: socket.socket) -> None:
        self._held.discard(connection)
        self._tell()

    def _tell(self) -> None:
        if self._listener.fileno() >= 0:
            self._connections.put(self._seat, len(self._held))
