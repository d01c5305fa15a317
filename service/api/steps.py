"""One request to /predict on its way, and the steps that both ways of answering it take.

The ways are `service.api.predict`, for whatever a server brings, and `service.api.fast_path`, for the usual request.
Between choosing a version and queueing for it nothing is awaited, so a version that is being unloaded either takes the
request and answers it, or was never chosen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from service import logs
from service.api import answers
from service.api.answers import Choice, Reply, Timing
from service.api.asking import Asked
from service.api.body import ClientGone, Headers
from service.api.glance import glance
from service.batching import Answer
from service.config import Settings
from service.control import Control
from service.errors import NotReady, problem, request_id
from service.experiments.answered import Answered, Shadow, Watching, shown
from service.experiments.ledger import Ledger
from service.experiments.tickets import Ticket
from service.metrics import NONE, Metrics
from service.readiness import wedged
from service.registry import Loaded, Registry
from service.scorer import Scored
from service.scoring.predictor import Predictor, RankRequest, RowRequest


@dataclass(slots=True)
class Call:
    """One request; `arrived` is set once its body is here, `version` and `ticket` once one is chosen."""

    headers: Headers
    started: float
    request_id: str
    arrived: float | None = None
    parsed: float = 0.0
    deadline: float | None = None
    version: str | None = None
    ticket: Ticket | None = None
    choice: Choice | None = None
    unit: str | None = None
    shadow: str | None = None
    answered: Answered | None = None


class Steps:
    """Of one worker. `clock` must be the batchers'.

    `after` are told of each answer with scores once it is sent; they must take no time.
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        control: Control,
        metrics: Metrics,
        ledger: Ledger,
        clock: Callable[[], float],
        *,
        watch: Watching | None = None,
        shadow: Shadow | None = None,
        after: Sequence[Callable[[Answered], None]] = (),
    ) -> None:
        self.settings, self.registry, self.control, self.metrics = settings, registry, control, metrics
        self._ledger, self.clock = ledger, clock
        self._watch, self._shadow = watch, shadow
        followers: Sequence[Callable[[Answered], None]] = () if shadow is None else (shadow,)
        self._after = (*after, *followers)

    def begin(self, headers: Headers, started: float) -> Call:
        """It is here: from now on it is being answered, until `close`."""
        self.metrics.in_flight(1)
        return Call(headers, started, request_id(headers.get(b"x-request-id")))

    def glance(self, body: bytes | bytearray, headers: Headers) -> Asked | None:
        """What a usual request asks for; None where it takes more than a glance."""
        most = self.settings.max_rows
        return glance(body, headers, self.control.split, self._predictor, self._unit_keys, most)

    def choose(self, call: Call, asked: Asked) -> Loaded:
        """The version that answers; the call's choice and ticket are set with it.

        Raises NotReady; adds a fault for a unit that is none.
        """
        split, document = self.control.split, self.control.document
        epoch = document.epoch
        unit = asked.unit if asked.has_unit else asked.find_unit(self._unit_keys())
        if asked.version is not None:
            choice = Choice(asked.version, split.experiment, "override", epoch, None)
        else:
            given = asked.assigned or split.assign(unit)
            choice = Choice(given.version, split.experiment, given.reason, epoch, given.propensity)
        call.choice, call.unit = choice, unit
        call.shadow = None if self._shadow is None else self._shadow.chosen(unit, choice.version)
        rows, shadowed = isinstance(asked.request, RowRequest), call.shadow is not None
        call.ticket = self._ledger.open(document, choice.version, choice.reason, unit, rows=rows, shadowed=shadowed)
        loaded = self.registry.get(choice.version)
        if loaded is None:
            raise NotReady(self.why_not(choice.version))
        if loaded.batcher.is_running and (reason := wedged(loaded, self.settings)):
            raise NotReady(reason)
        return loaded

    def succeed(self, call: Call, asked: Asked, loaded: Loaded, scored: Answer[Scored]) -> Reply:
        """The answer with the scores."""
        ticket, choice, value = call.ticket, call.choice, scored.value
        assert ticket is not None  # it was scored, so a version was chosen
        assert choice is not None  # as above
        assert asked.request is not None  # as above
        ranked = asked.request if isinstance(asked.request, RankRequest) else None
        item_key = loaded.predictor.schema.item
        body = answers.content(ticket.prediction_id, choice, value, ranked, item_key, asked.top_k)
        if ticket.fields.kept and call.shadow is None:
            items, places = shown(asked.request, value.scores, asked.top_k, item_key)
            self._ledger.keep(ticket, items, value.scores[places])
        if self._after:
            how = ticket.prediction_id, call.shadow, asked.top_k, item_key, ticket
            call.answered = Answered(asked.request, call.unit, *choice, value.scores, *how)
        timing = Timing(call.parsed - call.started, scored.queue_seconds, scored.run_seconds)
        return answers.success(body, loaded.version, call.request_id, timing)

    def fail(self, call: Call, error: BaseException) -> Reply | None:
        """The answer to whatever happened: a number and no internals. None where the client has gone."""
        if isinstance(error, ClientGone):
            self.metrics.rejected("abandoned")
            return None
        found = problem(error, call.request_id)
        if found.reason is not None:
            self.metrics.rejected(found.reason)
        if found.status == 500:
            fields = {"request_id": call.request_id, "version": call.version}
            logs.event("prediction failed", level=logging.ERROR, exc_info=error, **fields)
        return answers.failure(found, call.version, call.request_id)

    def close(self, call: Call, reply: Reply | None) -> None:
        """Count it, before the answer is sent: whoever has the answer finds it in the metrics."""
        self.metrics.in_flight(-1)
        seconds = self.clock() - call.started
        status = 499 if reply is None else reply.status
        self.metrics.request(call.version or NONE, status, seconds)
        if call.ticket is not None:
            self._ledger.close(call.ticket, status)
        if reply is not None and call.choice is not None and self._watch is not None:
            version, experiment, reason, epoch, _ = call.choice
            self._watch(experiment, epoch, version, reason, status, seconds)

    def follow(self, call: Call) -> None:
        """Tell of the answer once it is sent."""
        if call.answered is not None:
            for follow in self._after:
                follow(call.answered)

    def why_not(self, version: str) -> str:
        """Why a version answers nobody, for the client."""
        if not version:
            return "no version has weight yet"
        state, _ = self.registry.states().get(version, ("available", None))
        return f"version '{version}' is {state}, not ready"

    def _predictor(self, version: str) -> Predictor | None:
        loaded = self.registry.get(version)
        return None if loaded is None else loaded.predictor

    def _unit_keys(self) -> Iterator[str]:
        """Names of the unit feature, the default version's first: they may differ between versions."""
        document = self.control.document
        for version in (document.default, *document.weights):
            loaded = self.registry.get(version) if version else None
            if loaded is not None and loaded.predictor.schema.unit:
                yield loaded.predictor.schema.unit
