"""The answer of /predict: bytes from scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson
from starlette.types import Send

from service.errors import Problem
from service.experiments.answered import best_of, item_id
from service.scorer import Scored
from service.scoring.predictor import RankRequest

_HEAD = b"content-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\n"
_INTEGERS = range(-(2**63), 2**64)


class Choice(NamedTuple):
    """Which version answers, and how that came about."""

    version: str
    experiment: str
    reason: str
    epoch: int
    propensity: float | None

    def body(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "reason": self.reason,
            "epoch": self.epoch,
            "propensity": self.propensity,
        }


class Timing(NamedTuple):
    """Seconds until the request was understood, in the queue, and in its batch."""

    parse: float
    queue: float
    model: float


class Reply(NamedTuple):
    """A whole HTTP answer; `head` are its headers as they are written, a line each."""

    status: int
    head: bytes
    body: bytes

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Names, in lower case, and values."""
        pairs = (line.split(b": ", 1) for line in self.head.split(b"\r\n")[:-1])
        return [(name, value) for name, value in pairs]

    async def send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


def content(
    prediction_id: str,
    choice: Choice,
    scored: Scored,
    ranked: RankRequest | None,
    item_key: str | None,
    top_k: int | None,
) -> bytes:
    """The body; `ranked` where the request was in ranking form, whose items have their id under `item_key`."""
    answer: dict[str, Any] = {
        "prediction_id": prediction_id,
        "model_version": choice.version,
        "assignment": choice.body(),
    }
    best: list[int] | None = None
    if ranked is None or top_k is None:
        answer["predictions"] = scored.scores
    else:
        best = best_of(scored.scores, top_k).tolist()
        answer["ranking"] = [
            {"item_id": _echo(ranked.candidates[n], item_key), "score": scored.scores[n]} for n in best
        ]
    if scored.explanations is not None:
        # In the order of what they explain.
        answer["explanations"] = [scored.explanations[n] for n in best or range(len(scored.explanations))]
    if ranked is not None:
        answer["unknown_items"] = scored.unknown_items
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def success(body: bytes, version: str, request_id: str, timing: Timing) -> Reply:
    """With Server-Timing, in milliseconds."""
    parse, queue, model = timing
    spent = b"server-timing: parse;dur=%.3f, queue;dur=%.3f, model;dur=%.3f\r\n" % (
        parse * 1e3,
        queue * 1e3,
        model * 1e3,
    )
    return Reply(200, _head(body, request_id, version) + spent, body)


def failure(problem: Problem, version: str | None, request_id: str) -> Reply:
    more = "".join(f"{name.lower()}: {value}\r\n" for name, value in problem.headers)
    return Reply(problem.status, _head(problem.body, request_id, version) + more.encode(), problem.body)


def _head(body: bytes, request_id: str, version: str | None) -> bytes:
    # Nothing in it can end a line early: ids are printable, as names of versions are.
    head = _HEAD % (len(body), request_id.encode())
    return head if version is None else b"%bx-model-version: %b\r\n" % (head, version.encode())


def _echo(candidate: object, item_key: str | None) -> object:
    """The item's id as it was sent; orjson writes integers of 64 bits alone."""
    key = item_id(candidate, item_key)
    return orjson.Fragment(str(key)) if isinstance(key, int) and key not in _INTEGERS else key
