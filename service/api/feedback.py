"""POST /feedback: what was shown and clicked of predictions. Answered once it is in the store."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from service.api.auth import check_client
from service.api.body import BodyLimits, ClientGone, decode, read_json
from service.api.parts import parts_of
from service.api.proposal import BadBody
from service.errors import NotJson, TooManyRows, places
from service.feature_names import shorten
from service.scoring.values import Fault

MAX_EVENTS = 10_000
BODY_SECONDS = 20.0

_EVENT = {
    "type": "object",
    "required": ["prediction_id", "type", "item_id"],
    "properties": {
        "prediction_id": {"type": "string"},
        "type": {"enum": ["impression", "click"]},
        "item_id": {
            "anyOf": [{"type": "string"}, {"type": "integer"}],
            "description": "As it was sent to /predict; the row's index where that was in row form.",
        },
        "event_id": {
            "anyOf": [{"type": "string"}, {"type": "integer"}],
            "description": "By which a repetition is known; else it is by prediction, type and item.",
        },
        "timestamp": {
            "anyOf": [{"type": "number"}, {"type": "string"}],
            "description": "Epoch seconds or ISO 8601. Whether an event is late is judged by when it is received.",
        },
    },
}
_EXAMPLE = {"events": [{"prediction_id": "…", "type": "click", "item_id": "50", "event_id": "e-1"}]}
_COUNT = {"type": "integer", "minimum": 0}
_ANSWER = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("accepted", "duplicate", "late", "invalid"), _COUNT),
        "errors": {
            "type": "array",
            "description": "What is wrong with the invalid ones, the first 20.",
            "items": {
                "type": "object",
                "properties": {"loc": {"type": "array"}, "msg": {"type": "string"}, "type": {"type": "string"}},
            },
        },
    },
}
OPENAPI: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["events"],
                    "additionalProperties": False,
                    "properties": {"events": {"type": "array", "maxItems": MAX_EVENTS, "items": _EVENT}},
                },
                "example": _EXAMPLE,
            }
        },
    },
    "responses": {
        "202": {"description": "Counted, each event once", "content": {"application/json": {"schema": _ANSWER}}},
        "429": {"description": "More events wait than can be counted soon; see Retry-After"},
    },
}

router = APIRouter(tags=["experiments"])


@router.post("/feedback", status_code=202, openapi_extra=OPENAPI)
async def feedback(request: Request) -> Response:
    """Impressions and clicks; each counts once, however often and wherever it is sent."""
    parts = parts_of(request)
    settings, metrics = parts["settings"], parts["metrics"]
    check_client(settings, metrics, request.headers.get("authorization"))
    limits = BodyLimits(settings.max_body_bytes, BODY_SECONDS)
    headers = dict(request.scope["headers"])
    try:
        body = await read_json(headers, request.receive, limits, asyncio.get_running_loop())
    except ClientGone:
        raise NotJson("the client left before its body was whole") from None
    taken = await parts["ledger"].take(lambda: events_of(body))
    counts = {
        "accepted": taken.recorded.accepted,
        "duplicate": taken.recorded.duplicate,
        "late": taken.judged.late,
        "invalid": taken.judged.invalid,
    }
    metrics.feedback(counts, taken.recorded.impressions, taken.recorded.clicks)
    return Response(orjson.dumps({**counts, "errors": places(taken.judged.faults)}), 202, media_type="application/json")


def events_of(body: bytes | bytearray) -> list[object]:
    """The events of a body, each still to be judged. Raises NotJson, BadBody, TooManyRows."""
    content = decode(body)
    if not isinstance(content, dict):
        raise BadBody([Fault((), "the body must be a JSON object", "dict_type")])
    unknown = [Fault((shorten(key),), "no such field", "extra_forbidden") for key in content if key != "events"]
    if unknown:
        raise BadBody(unknown)
    if "events" not in content:
        raise BadBody([Fault(("events",), "a list of events is needed", "missing")])
    events = content["events"]
    if not isinstance(events, list):
        raise BadBody([Fault(("events",), "must be a list", "list_type")])
    if len(events) > MAX_EVENTS:
        raise TooManyRows(f"{len(events)} events are more than the {MAX_EVENTS} that are allowed")
    return events
