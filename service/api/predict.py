"""POST /predict, on the bare ASGI messages: read, parse, choose a version, queue, answer.

Between choosing a version and queueing for it nothing is awaited, so a version that is being unloaded either takes the
request and answers it, or was never chosen.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn

from starlette.types import Receive, Scope, Send

from service import logs
from service.api import answers
from service.api.answers import Choice, Reply, Timing
from service.api.asking import Asked, parse, take_timeout
from service.api.auth import check_client
from service.api.body import BodyLimits, ClientGone, Headers, decode, read_json
from service.api.glance import glance
from service.batching import Answer, QueueFull
from service.config import Settings
from service.control import Control
from service.errors import NotReady, UnknownVersion, VersionNotLoaded, problem, request_id
from service.experiments.answered import Answered, Shadow, Watching
from service.experiments.ledger import Ledger
from service.experiments.tickets import Ticket
from service.metrics import NONE, Metrics
from service.readiness import wedged
from service.registry import Loaded, Registry
from service.scorer import Request, Scored, Scorer
from service.scoring.artifact import version_names
from service.scoring.predictor import Predictor, RankRequest, RowRequest
from service.scoring.values import EncodeError, Fault

BODY_SECONDS = 10.0
# Bodies beyond this are parsed off the event loop: a millisecond there is a millisecond for everybody.
LARGE_BODY = 64 * 1024


@dataclass(slots=True)
class Call:
    """One request on its way; `arrived` is set once its body is here, `version` and `ticket` once one is chosen."""

    headers: Headers
    receive: Receive
    started: float
    request_id: str
    arrived: float | None = None
    deadline: float | None = None
    version: str | None = None
    ticket: Ticket | None = None
    choice: Choice | None = None
    unit: str | None = None
    shadow: str | None = None
    answered: Answered | None = None


class Predict:
    """The endpoint of one worker; an async context manager. `clock` must be the batchers'.

    `after` are told of each answer with scores once it is sent; they must take no time.
    """

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
        self._settings, self._registry, self._control, self._metrics = settings, registry, control, metrics
        self._ledger = ledger
        self._limits = BodyLimits(settings.max_body_bytes, body_seconds)
        self._watch, self._shadow, self._clock = watch, shadow, clock
        followers: Sequence[Callable[[Answered], None]] = () if shadow is None else (shadow,)
        self._after = (*after, *followers)
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
        call = Call(headers, receive, self._clock(), request_id(headers.get(b"x-request-id")))
        self._metrics.in_flight(1)
        try:
            reply = await self._answer(call)
        finally:
            self._metrics.in_flight(-1)
        # Counted before it is sent: whoever has the answer finds it in the metrics.
        seconds = self._clock() - call.started
        status = 499 if reply is None else reply.status
        self._metrics.request(call.version or NONE, status, seconds)
        if call.ticket is not None:
            self._ledger.close(call.ticket, status)
        if reply is not None:
            if call.choice is not None and self._watch is not None:
                version, experiment, reason, epoch, _ = call.choice
                self._watch(experiment, epoch, version, reason, reply.status, seconds)
            await reply.send(send)
        if call.answered is not None:
            for follow in self._after:
                follow(call.answered)

    @property
    def is_full(self) -> bool:
        """Whether there is no time for one more request of the usual size."""
        return self._registry.workload.is_full

    def turn_away(self, headers: Iterable[tuple[bytes, bytes]]) -> Reply | None:
        """The answer to a request that there is no time for, by its headers alone; None where there is time."""
        try:
            self._registry.workload.check()
        except QueueFull as error:
            known = request_id(dict(headers).get(b"x-request-id"))
            found = problem(error, known)
            self._metrics.rejected("queue_full")
            self._metrics.request(NONE, found.status, 0.0)
            return answers.failure(found, None, known)
        return None

    async def _answer(self, call: Call) -> Reply | None:
        """The reply; None where the client has gone."""
        try:
            return await self._predict(call)
        except ClientGone:
            self._metrics.rejected("abandoned")
            return None
        except Exception as error:  # noqa: BLE001 - the edge: whatever happened, the client gets a number and no internals
            found = problem(error, call.request_id)
            if found.reason is not None:
                self._metrics.rejected(found.reason)
            if found.status == 500:
                fields = {"request_id": call.request_id, "version": call.version}
                logs.event("prediction failed", level=logging.ERROR, exc_info=error, **fields)
            return answers.failure(found, call.version, call.request_id)

    async def _predict(self, call: Call) -> Reply:
        check_client(self._settings, self._metrics, _authorization(call.headers))
        if self._control.draining:
            raise NotReady("the service is shutting down")
        asked = await self._read(call)
        parsed = self._clock()
        if asked.request is None:
            raise EncodeError(asked.faults)
        if asked.version is not None and self._registry.get(asked.version) is None:
            await self._refuse_version(asked.version)
        loaded, choice, ticket = self._choose(call, asked)
        if asked.faults:
            raise EncodeError(await self._all_faults(asked.request, asked.faults, loaded))
        call.version = loaded.version
        scored = await self._score(call, asked.request, loaded, choice)
        ranked = asked.request if isinstance(asked.request, RankRequest) else None
        item_key = loaded.predictor.schema.item
        body = answers.content(ticket.prediction_id, choice, scored.value, ranked, item_key, asked.top_k)
        if ticket.fields.kept and call.shadow is None:
            self._ledger.keep(ticket, *answers.shown(scored.value, ranked, item_key, asked.top_k))
        if self._after:
            how = ticket.prediction_id, call.shadow, asked.top_k, item_key, ticket
            call.answered = Answered(asked.request, call.unit, *choice, scored.value.scores, *how)
        timing = Timing(parsed - call.started, scored.queue_seconds, scored.run_seconds)
        return answers.success(body, loaded.version, call.request_id, timing)

    async def _read(self, call: Call) -> Asked:
        body = await read_json(call.headers, call.receive, self._limits, self._loop)
        self._registry.workload.check()
        call.arrived = self._clock()
        if len(body) > LARGE_BODY:
            asked = await self._loop.run_in_executor(self._thread, self._parse, body, call.headers)
            asked.assigned = None  # by a split that may be gone by now
        else:
            asked = self._parse(body, call.headers)
        timeout = take_timeout(asked, call.headers, self._settings.timeout_ms / 1e3 or None)
        call.deadline = None if timeout is None else call.started + timeout
        return asked

    def _parse(self, body: bytes | bytearray, headers: Headers) -> Asked:
        most = self._settings.max_rows
        seen = glance(body, headers, self._control.split, self._predictor, self._unit_keys, most)
        return seen or parse(decode(body), headers, max_rows=most)

    def _predictor(self, version: str) -> Predictor | None:
        loaded = self._registry.get(version)
        return None if loaded is None else loaded.predictor

    def _choose(self, call: Call, asked: Asked) -> tuple[Loaded, Choice, Ticket]:
        """The version that answers, and under which ticket. Raises NotReady; adds a fault for a unit that is none."""
        split, document = self._control.split, self._control.document
        epoch = document.epoch
        unit = asked.find_unit(self._unit_keys())
        if asked.version is not None:
            choice = Choice(asked.version, split.experiment, "override", epoch, None)
        else:
            given = asked.assigned or split.assign(unit)
            choice = Choice(given.version, split.experiment, given.reason, epoch, given.propensity)
        call.choice, call.unit = choice, unit
        call.shadow = None if self._shadow is None else self._shadow.chosen(unit, choice.version)
        rows, shadowed = isinstance(asked.request, RowRequest), call.shadow is not None
        ticket = self._ledger.open(document, choice.version, choice.reason, unit, rows=rows, shadowed=shadowed)
        call.ticket = ticket
        loaded = self._registry.get(choice.version)
        if loaded is None:
            raise NotReady(self._why_not(choice.version))
        if reason := wedged(loaded, self._settings):
            raise NotReady(reason)
        return loaded, choice, ticket

    def _unit_keys(self) -> Iterator[str]:
        """Names of the unit feature, the default version's first: they may differ between versions."""
        document = self._control.document
        for version in (document.default, *document.weights):
            loaded = self._registry.get(version) if version else None
            if loaded is not None and loaded.predictor.schema.unit:
                yield loaded.predictor.schema.unit

    async def _score(self, call: Call, request: Request, loaded: Loaded, choice: Choice) -> Answer[Scored]:
        future = loaded.batcher.enqueue(request, deadline=call.deadline, arrived=call.arrived)
        self._metrics.assignment(choice.version, choice.reason)
        if loaded.batcher.is_running:
            # It has to wait: time in which the client may leave.
            watch = asyncio.create_task(_fail_when_gone(call.receive, future))
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
        raise VersionNotLoaded(self._why_not(version))

    def _why_not(self, version: str) -> str:
        if not version:
            return "no version has weight yet"
        state, _ = self._registry.states().get(version, ("available", None))
        return f"version '{version}' is {state}, not ready"


def _authorization(headers: Headers) -> str | None:
    header = headers.get(b"authorization")
    return None if header is None else header.decode("latin-1")


async def _fail_when_gone(receive: Receive, future: asyncio.Future[Answer[Scored]]) -> None:
    """Once the body is read, the next message is that the client left: its request leaves the queue."""
    message = await receive()
    if message["type"] == "http.disconnect" and not future.done():
        future.set_exception(ClientGone())
