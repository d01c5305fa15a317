"""From an exception to an answer: one table, by type. Bodies have FastAPI's `detail`, and never a value of the client.

Refusal                 what a request does wrong before any version is asked
├── NotJson             400
├── Unauthorised        401
├── Forbidden           403
├── UnknownVersion      404
├── SlowBody            408
├── VersionNotLoaded    409
├── TooLarge            413   ── TooManyRows
├── WrongType           415
└── NotReady            503
Unknown                 404   Conflict 409, of a change
LoadError, EncodeError  422   the latter with its faults listed
QueueFull, OutOfMemory, Behind  429
BatchFailed, ScoringFailed, NonFiniteScore, whatever is not expected        500
Draining, StateError    503
DeadlinePassed          504
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import Response

from service.batching import BatchFailed, DeadlinePassed, Draining, QueueFull
from service.changes import Conflict, Unknown
from service.experiments.ledger import Behind
from service.ids import new_id
from service.registry import LoadError
from service.scorer import NonFiniteScore, OutOfMemory, ScoringFailed
from service.scoring.values import EncodeError, Fault
from service.state import StateError

MAX_FAULTS = 20
RETRY_AFTER = "1"
_REQUEST_ID = re.compile(rb"[ -~]{1,128}")


class Refusal(Exception):
    """What a request does wrong before any version is asked; the message is for the client."""


class NotJson(Refusal):
    """The body is not JSON."""


class Unauthorised(Refusal):
    """A token is needed, and it is not there or wrong."""


class Forbidden(Refusal):
    """Not from here, or not as the service is set up; the message says how it could be."""


class UnknownVersion(Refusal):
    """The version that was asked for does not exist."""


class SlowBody(Refusal):
    """The body did not arrive in time."""


class VersionNotLoaded(Refusal):
    """The version that was asked for exists and is not ready."""


class TooLarge(Refusal):
    """The body is larger than allowed."""


class TooManyRows(TooLarge):
    """More rows than allowed."""


class WrongType(Refusal):
    """A content type or a content encoding that is not read."""


class NotReady(Refusal):
    """The version that should answer is not ready."""


@dataclass(frozen=True, slots=True)
class Row:
    """How one type of exception is answered: `detail` None means its message, `reason` is counted as a rejection."""

    status: int
    detail: str | None = None
    reason: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


_RETRY = (("Retry-After", RETRY_AFTER),)
_CLOSE = (("Connection", "close"),)

TABLE: dict[type[Exception], Row] = {
    NotJson: Row(400),
    Unauthorised: Row(401, headers=(("WWW-Authenticate", "Bearer"),)),
    Forbidden: Row(403),
    UnknownVersion: Row(404),
    SlowBody: Row(408, reason="slow_body", headers=_CLOSE),
    VersionNotLoaded: Row(409),
    TooManyRows: Row(413, reason="too_many_rows"),
    TooLarge: Row(413, reason="body_too_large"),
    WrongType: Row(415),
    Unknown: Row(404),
    Conflict: Row(409),
    LoadError: Row(422),
    EncodeError: Row(422),
    QueueFull: Row(429, reason="queue_full"),
    Behind: Row(429, headers=_RETRY),
    OutOfMemory: Row(429, "no memory for this request now", "out_of_memory", _RETRY),
    BatchFailed: Row(500, "the model failed", "model_failed"),
    ScoringFailed: Row(500, "the model failed", "model_failed"),
    NonFiniteScore: Row(500, "the model gave a score that is not finite", "non_finite_score"),
    NotReady: Row(503, reason="not_ready", headers=_RETRY),
    Draining: Row(503, reason="draining", headers=_RETRY),
    StateError: Row(503, "the state store cannot be used", headers=_RETRY),
    DeadlinePassed: Row(504, reason="deadline"),
    Exception: Row(500, "the server failed"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """An answer that is no success."""

    status: int
    body: bytes
    reason: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


def problem(error: BaseException, request_id: str) -> Problem:
    """The answer to an exception, by the table's nearest entry along its bases."""
    row = next((TABLE[kind] for kind in type(error).__mro__ if kind in TABLE), TABLE[Exception])
    if isinstance(error, EncodeError):
        return Problem(row.status, detail_of_faults(error.faults))
    content = {"detail": row.detail or str(error)}
    if row.status >= 500:
        content["request_id"] = request_id
    headers = row.headers
    if isinstance(error, QueueFull):
        headers = (("Retry-After", str(error.retry_after)),)
    return Problem(row.status, orjson.dumps(content), row.reason, headers)


def detail_of_faults(faults: Iterable[Fault]) -> bytes:
    """FastAPI's 422: the first faults, one for each place."""
    return orjson.dumps({"detail": places(faults)})


def places(faults: Iterable[Fault]) -> list[dict[str, object]]:
    """The first faults as FastAPI lists them, one for each place."""
    first: dict[tuple[str | int, ...], Fault] = {}
    for fault in faults:
        first.setdefault(fault.loc, fault)
    listed: list[dict[str, object]] = [
        {"loc": _loc(fault), "msg": fault.msg, "type": fault.type} for fault in first.values()
    ]
    return listed[:MAX_FAULTS]


def install(app: FastAPI) -> None:
    """Give the table to what FastAPI itself routes; strict JSON for every answer."""
    app.add_exception_handler(RequestValidationError, _on_invalid)
    for kind in TABLE:
        app.add_exception_handler(kind, _on_error)


async def _on_invalid(_: Request, error: Exception) -> Response:
    """FastAPI's own faults, without the values that it would repeat."""
    assert isinstance(error, RequestValidationError)  # as registered
    listed = [{key: one[key] for key in ("loc", "msg", "type")} for one in error.errors()[:MAX_FAULTS]]
    return Response(orjson.dumps({"detail": listed}), 422, media_type="application/json")


async def _on_error(request: Request, error: Exception) -> Response:
    header = request.headers.get("x-request-id")
    known = request_id(None if header is None else header.encode("latin-1"))
    found = problem(error, known)
    headers = {**dict(found.headers), "X-Request-Id": known}
    return Response(found.body, found.status, headers, media_type="application/json")


def _loc(fault: Fault) -> list[str | int]:
    return list(fault.loc) if fault.loc[:1] in (("header",), ("path",), ("query",)) else ["body", *fault.loc]


def request_id(header: bytes | None) -> str:
    """The id that a request came with, where it is short and printable, else a new one."""
    if header is not None and _REQUEST_ID.fullmatch(header):
        return header.decode("ascii")
    return new_id()
