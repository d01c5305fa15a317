"""The usual request to /predict without a task, a future or a message: taken once it is read, answered once scored.

    take ─▶ glance ─▶ choose ─▶ the version's queue ─▶ Waiting ─▶ the reply is handed over

What asks for more than that is left to `service.api.predict`, which answers it in the same steps; nothing is then
done here. Where a few thousand requests a second are answered, a task and its messages cost as much as the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from service import logs
from service.api.answers import Reply
from service.api.asking import Asked, take_timeout
from service.api.auth import bears
from service.api.body import Headers
from service.api.steps import Call, Steps
from service.batching import Answer
from service.registry import Loaded
from service.scorer import Scored

# Given the reply, or None where the client was gone.
Deliver = Callable[[Reply | None], None]


class FastPath:
    """Of one worker; a body is parsed here where it has at most `most_bytes`."""

    def __init__(self, steps: Steps, most_bytes: int) -> None:
        self._steps, self._most_bytes = steps, most_bytes
        self._timeout = steps.settings.timeout_ms / 1e3 or None
        self.waiting = 0

    def take(self, headers: Headers, body: bytes, deliver: Deliver) -> Waiting | None:
        """Take a whole request; `deliver` is called with its reply, now or later. None, with nothing done, where it
        is not usual."""
        steps = self._steps
        started = steps.clock()
        if not self._is_usual(headers, body):
            return None
        try:
            asked = steps.glance(body, headers)
        except Exception:  # noqa: BLE001 - whatever it was, the other way meets it again and tells of it
            return None
        if asked is None or asked.request is None:
            return None
        timeout = take_timeout(asked, headers, self._timeout)
        if asked.faults:
            return None
        call = steps.begin(headers, started)
        call.arrived, call.parsed = started, steps.clock()
        call.deadline = None if timeout is None else started + timeout
        waiting = Waiting(self, steps, call, asked, deliver)
        self.waiting += 1
        try:
            loaded = waiting.loaded = steps.choose(call, asked)
            call.version = loaded.version
            loaded.batcher.add(asked.request, waiting, deadline=call.deadline, arrived=started)
        except Exception as error:  # noqa: BLE001 - the edge: the client gets an answer whatever happened
            waiting.set_exception(error)
            return waiting
        assert call.choice is not None  # `choose` has made it
        steps.metrics.assignment(loaded.version, call.choice.reason)
        return waiting

    def _is_usual(self, headers: Headers, body: bytes) -> bool:
        """Whether nothing but the body needs to be looked at; a body beyond the limits is not."""
        steps = self._steps
        if len(body) > self._most_bytes or steps.control.draining:
            return False
        if headers.get(b"content-type") != b"application/json" or b"content-encoding" in headers:
            return False
        token = steps.settings.client_token
        return token is None or bears(headers.get(b"authorization", b"").decode("latin-1"), token)


class Waiting:
    """One request in its version's queue: what ends it, as it would end a future, also answers it."""

    __slots__ = ("_asked", "_call", "_calls", "_deliver", "_done", "_path", "_steps", "loaded")

    def __init__(self, path: FastPath, steps: Steps, call: Call, asked: Asked, deliver: Deliver) -> None:
        self._path, self._steps, self._call, self._asked, self._deliver = path, steps, call, asked, deliver
        self.loaded: Loaded | None = None
        self._done = False
        self._calls: list[Callable[[Any], object]] = []

    def done(self) -> bool:
        return self._done

    def set_result(self, scored: Answer[Scored], /) -> None:
        assert self.loaded is not None  # it was queued at one
        reply: Reply | None
        try:
            reply = self._steps.succeed(self._call, self._asked, self.loaded, scored)
        except Exception as error:  # noqa: BLE001 - as in `FastPath.take`
            reply = self._steps.fail(self._call, error)
        self._end(reply)

    def set_exception(self, error: BaseException, /) -> None:
        self._end(self._steps.fail(self._call, error))

    def add_done_callback(self, call: Callable[[Any], object], /) -> None:
        self._calls.append(call)

    def _end(self, reply: Reply | None) -> None:
        self._done = True
        self._path.waiting -= 1
        try:
            self._steps.close(self._call, reply)
            self._deliver(reply)
            self._steps.follow(self._call)
        except Exception as error:  # noqa: BLE001 - a batch goes on to its other callers
            logs.event("answer not delivered", level=logging.ERROR, exc_info=error)
        for call in self._calls:
            call(self)
