"""POST /predict, on the bare ASGI messages: read, parse, choose a version, queue, answer.

The usual request comes by `fast_path` instead, where the server can hand it over whole.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from types import TracebackType
from typing import NoReturn

from starlette.types import Receive, Scope, Send

from service.api import answers
from service.api.answers import Reply
from service.api.asking import Asked, parse, take_timeout
from service.api.auth import check_client
from service.api.body import BodyLimits, ClientGone, Headers, decode, read_json
from service.api.fast_path import Deliver, FastPath, Waiting
from service.api.steps import Call, Steps
from service.batching import TOO_MUCH, Answer, QueueFull, whole_seconds
from service.config import Settings
from service.control import Control
from service.errors import NotReady, UnknownVersion, VersionNotLoaded, problem, request_id
from service.experiments.answered import Answered, Shadow, Watching
from service.experiments.ledger import Ledger
from service.metrics import Metrics
from service.registry import Loaded, Registry
from service.scorer import Request, Scored, Scorer
from service.scoring.artifact import version_names
from service.scoring.values import EncodeError, Fault

BODY_SECONDS = 10.0
# Bodies beyond this are parsed off the event loop: a millisecond there is a millisecond for everybody.
LARGE_BODY = 64 * 1024


class Predict:
    """The endpoint of one worker; an async context manager. See `Steps` for `after` and `clock`."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        control: Control,
        metrics: Metrics,
        ledger: Ledger,
        *,
        watch: Watching | None = None,
        shadow: Shadow | None = None,
        after: Sequence[Callable[[Answered], None]] = (),
        body_seconds: float = BODY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._registry, self._metrics = settings, registry, metrics
        parts = settings, registry, control, metrics, ledger
        self._steps = Steps(*parts, clock, watch=watch, shadow=shadow, after=after)
        self._fast_path = FastPath(self._steps, min(LARGE_BODY, settings.max_body_bytes))
        self._limits = BodyLimits(settings.max_body_bytes, body_seconds)
        # One thread: two would only take turns with the event loop for the interpreter.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="parse")

    async def __aenter__(self) -> Predict:
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        call = self._steps.begin(headers, self._steps.clock())
        reply: Reply | None = None
        try:
            reply = await self._predict(call, receive)
        except Exception as error:  # noqa: BLE001 - the edge: whatever happened, the client gets an answer
            reply = self._steps.fail(call, error)
        finally:
            self._steps.close(call, reply)
        if reply is not None:
            await reply.send(send)
        self._steps.follow(call)

    @property
    def waiting(self) -> int:
        """Requests of the fast path that are not answered yet: no task of the server's stands for them."""
        return self._fast_path.waiting

    def take(self, headers: Headers, body: bytes, deliver: Deliver) -> Waiting | None:
        """See `FastPath.take`."""
        return self._fast_path.take(headers, body, deliver)

    def turn_away(self, headers: Headers) -> Reply | None:
        """The answer to a request that there is no time for, by its headers alone; None where there is time."""
        workload = self._registry.workload
        if not workload.is_full:
            return None
        self._metrics.turned_away()
        status, head, body = _turned_away(whole_seconds(workload.drain_seconds))
        return Reply(status, head % request_id(headers.get(b"x-request-id")).encode(), body)

    async def _predict(self, call: Call, receive: Receive) -> Reply:
        check_client(self._settings, self._metrics, _authorization(call.headers))
        if self._steps.control.draining:
            raise NotReady("the service is shutting down")
        asked = await self._read(call, receive)
        call.parsed = self._steps.clock()
        if asked.request is None:
            raise EncodeError(asked.faults)
        if asked.version is not None and self._registry.get(asked.version) is None:
            await self._refuse_version(asked.version)
        loaded = self._steps.choose(call, asked)
        if asked.faults:
            raise EncodeError(await self._all_faults(asked.request, asked.faults, loaded))
        call.version = loaded.version
        return self._steps.succeed(call, asked, loaded, await self._score(call, receive, asked.request, loaded))

    async def _read(self, call: Call, receive: Receive) -> Asked:
        body = await read_json(call.headers, receive, self._limits, self._loop)
        self._registry.workload.check()
        call.arrived = self._steps.clock()
        if len(body) > LARGE_BODY:
            asked = await self._loop.run_in_executor(self._thread, self._parse, body, call.headers)
            asked.assigned = None  # by a split that may be gone by now
        else:
            asked = self._parse(body, call.headers)
        timeout = take_timeout(asked, call.headers, self._settings.timeout_ms / 1e3 or None)
        call.deadline = None if timeout is None else call.started + timeout
        return asked

    def _parse(self, body: bytes | bytearray, headers: Headers) -> Asked:
        seen = self._steps.glance(body, headers)
        return seen or parse(decode(body), headers, max_rows=self._settings.max_rows)

    async def _score(self, call: Call, receive: Receive, request: Request, loaded: Loaded) -> Answer[Scored]:
        future = loaded.batcher.enqueue(request, deadline=call.deadline, arrived=call.arrived)
        assert call.choice is not None  # it was `loaded`
        self._metrics.assignment(loaded.version, call.choice.reason)
        if loaded.batcher.is_running:
            # It has to wait: time in which the client may leave.
            watch = asyncio.create_task(_fail_when_gone(receive, future))
            try:
                scored = await future
            finally:
                watch.cancel()
        else:
            scored = await future
        return scored

    async def _all_faults(self, request: Request, faults: list[Fault], loaded: Loaded) -> list[Fault]:
        """The faults of the form, and what the version finds wrong with the rest."""
        ignore = self._settings.unknown_features == "ignore"
        scorer = Scorer(loaded.predictor, lambda: self._registry.known, ignore_unknown=ignore)
        try:
            await self._loop.run_in_executor(self._thread, scorer.prepare, request)
        except EncodeError as error:
            return [*faults, *error.faults]
        return faults

    async def _refuse_version(self, version: str) -> NoReturn:
        names = await asyncio.to_thread(version_names, self._settings.artifacts)
        if version not in names and version not in self._registry.states():
            raise UnknownVersion(f"no version '{version}' in the artifacts")
        raise VersionNotLoaded(self._steps.why_not(version))


@lru_cache
def _turned_away(seconds: int) -> Reply:
    """Most of an overload is refusals: their answer is made once, but for the request's id in its head."""
    return answers.failure(problem(QueueFull(TOO_MUCH, seconds), ""), None, "%b")


def _authorization(headers: Headers) -> str | None:
    header = headers.get(b"authorization")
    return None if header is None else header.decode("latin-1")


async def _fail_when_gone(receive: Receive, future: asyncio.Future[Answer[Scored]]) -> None:
    """Once the body is read, the next message is that the client left: its request leaves the queue."""
    message = await receive()
    if message["type"] == "http.disconnect" and not future.done():
        future.set_exception(ClientGone())
