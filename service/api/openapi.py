"""How /predict stands in the OpenAPI document: it is parsed by hand, so it is described by hand."""

from __future__ import annotations

from typing import Any

_FEATURES = {
    "type": "object",
    "description": "Feature values by name: a finite number, a string or an integer for a category, a list of these, "
    "epoch seconds or ISO 8601 for a time. A key left out, null and an empty string are missing values.",
    "additionalProperties": True,
}
_ID = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
_COMMON = {
    "unit_id": {
        **_ID,
        "description": "Who is randomised; 42 and '42' are one unit, an empty string is none. "
        "Default: the header X-Unit-Id, else the unit feature of `user` or of the first instance.",
    },
    "version": {"type": "string", "description": "Overrides the split; also as header X-Model-Version."},
    "explain": {
        "type": "boolean",
        "description": "Adds what each score is made of; at most 20 rows.",
        "default": False,
    },
}
_ROWS = {
    "title": "Rows",
    "type": "object",
    "required": ["instances"],
    "additionalProperties": False,
    "properties": {"instances": {"type": "array", "minItems": 1, "items": _FEATURES}, **_COMMON},
}
_RANKING = {
    "title": "Ranking",
    "type": "object",
    "required": ["user", "candidates"],
    "additionalProperties": False,
    "properties": {
        "user": _FEATURES,
        "context": _FEATURES,
        "candidates": {
            "type": "array",
            "minItems": 1,
            "description": "Item ids, or objects with the item key and features that override the catalog's.",
            "items": {"anyOf": [*_ID["anyOf"], _FEATURES]},
        },
        "top_k": {"type": "integer", "minimum": 1, "description": "Answer with a ranking of so many, best first."},
        **_COMMON,
    },
}
_PROBABILITY = {"type": "number", "minimum": 0, "maximum": 1}
_ANSWER = {
    "title": "Predictions",
    "type": "object",
    "required": ["prediction_id", "model_version", "assignment"],
    "properties": {
        "prediction_id": {"type": "string"},
        "model_version": {"type": "string"},
        "assignment": {
            "type": "object",
            "required": ["experiment", "reason", "epoch", "propensity"],
            "properties": {
                "experiment": {"type": "string"},
                "reason": {"enum": ["split", "override", "default", "no_unit"]},
                "epoch": {"type": "integer"},
                "propensity": {
                    "anyOf": [_PROBABILITY, {"type": "null"}],
                    "description": "The version's share inside the coverage; null where the split did not choose.",
                },
            },
        },
        "predictions": {"type": "array", "items": _PROBABILITY, "description": "In the request's order."},
        "ranking": {
            "type": "array",
            "description": "Instead of `predictions` where `top_k` was given: best first, ties in the request's order.",
            "items": {"type": "object", "properties": {"item_id": _ID, "score": _PROBABILITY}},
        },
        "unknown_items": {"type": "integer", "description": "Ranking form: candidates that the catalog lacks."},
    },
}
_FAULTS = {
    "type": "object",
    "properties": {
        "detail": {
            "type": "array",
            "maxItems": 20,
            "items": {
                "type": "object",
                "properties": {
                    "loc": {"type": "array", "items": _ID},
                    "msg": {"type": "string"},
                    "type": {"type": "string"},
                },
            },
        }
    },
}
_DETAIL = {
    "type": "object",
    "properties": {
        "detail": {"type": "string"},
        "request_id": {"type": "string", "description": "Where the status is 500 or more."},
    },
}
_FAILURES = {
    400: "Not JSON: malformed, NaN or Infinity, not UTF-8, nested too deep",
    401: "A client token is set and was not sent",
    404: "No such version",
    408: "The body came too slowly",
    409: "The version exists and is not loaded",
    413: "The body is too large, or holds too many rows",
    415: "Not JSON by its content type, or a content encoding",
    429: "The queue is full; see Retry-After",
    500: "The model failed, or gave a score that is not finite",
    503: "The version that should answer is not ready, or the service is shutting down; see Retry-After",
    504: "The deadline passed",
}
_EXAMPLES = {
    "ranking": {
        "summary": "Rank candidates for a user",
        "value": {"user": {"user_id": "42", "age": 33}, "candidates": ["50", "181", "258"], "top_k": 2},
    },
    "rows": {
        "summary": "Score rows",
        "value": {"instances": [{"user_id": "42", "age": 33, "genres": ["Comedy"]}], "unit_id": "42"},
    },
}
_ANSWER_EXAMPLE = {
    "prediction_id": "OAAAAAABimrgZ4b3HkP1q0mZr2WcT9uYx5NfLdQe",
    "model_version": "v2",
    "assignment": {"experiment": "default", "reason": "split", "epoch": 1, "propensity": 0.1},
    "ranking": [{"item_id": "50", "score": 0.8127}, {"item_id": "181", "score": 0.7713}],
    "unknown_items": 0,
}


def _header(name: str, about: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": about, "schema": {"type": "string"}}


def _json(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema, **more}}


PREDICT: dict[str, Any] = {
    "post": {
        "tags": ["predictions"],
        "summary": "Probabilities of a click, by the version that the split gives the unit",
        "operationId": "predict",
        "parameters": [
            _header("X-Unit-Id", "Who is randomised; `unit_id` in the body wins"),
            _header("X-Model-Version", "Overrides the split; `version` in the body wins"),
            _header("X-Request-Timeout-Ms", "How long the answer may take; 504 afterwards"),
            _header("X-Request-Id", "Echoed"),
        ],
        "requestBody": {"required": True, "content": _json({"anyOf": [_RANKING, _ROWS]}, examples=_EXAMPLES)},
        "responses": {
            "200": {
                "description": "One probability for each instance or candidate",
                "headers": {
                    "X-Request-Id": {"schema": {"type": "string"}},
                    "X-Model-Version": {"schema": {"type": "string"}},
                    "Server-Timing": {"schema": {"type": "string"}, "description": "parse, queue, model"},
                },
                "content": _json(_ANSWER, example=_ANSWER_EXAMPLE),
            },
            "422": {"description": "Every fault of the request, the first 20", "content": _json(_FAULTS)},
            **{str(code): {"description": text, "content": _json(_DETAIL)} for code, text in _FAILURES.items()},
        },
    }
}
