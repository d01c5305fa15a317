"""How the calls of /models stand in the OpenAPI document: parsed by hand, so described by hand."""

from __future__ import annotations

from typing import Any

from service.names import RULE

_ADMIN = (
    "Needs `Authorization: Bearer $TWINRANK_ADMIN_TOKEN`; without such a token set, taken only while the service is "
    "bound to loopback."
)
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "description": 'The epoch that is meant, as `"7"`; 412 with the current document where it is another.',
    "schema": {"type": "string"},
}
_NAME = {"type": "string", "description": RULE}
_SPLIT = {
    "type": "object",
    "required": ["weights"],
    "additionalProperties": False,
    "properties": {
        "weights": {
            "type": "object",
            "description": "Weight by version; shares are weight / sum, a version not named has none, 0 means zero.",
            "additionalProperties": {"type": "number", "minimum": 0},
        },
        "coverage": {"type": "number", "minimum": 0, "maximum": 1, "description": "The part of the units split."},
        "default": {**_NAME, "description": "Answers units outside the coverage."},
        "experiment": {**_NAME, "description": "Salts the assignment: another one redraws every unit."},
        "shadow": {
            "type": ["object", "null"],
            "required": ["version", "fraction"],
            "additionalProperties": False,
            "properties": {"version": _NAME, "fraction": {"type": "number", "exclusiveMinimum": 0, "maximum": 1}},
            "description": "A version that scores a fraction of the requests after they were answered; null clears.",
        },
        "comment": {"type": "string", "description": "For the history."},
    },
    "examples": [{"weights": {"v1": 90, "v2": 10}, "experiment": "home-feed-7", "comment": "first step"}],
}
_EPOCH = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"epoch": {"type": "integer", "minimum": 1, "description": "Left out: undo the current split."}},
}
_REVISION = {
    "type": "object",
    "required": ["revision"],
    "additionalProperties": False,
    "properties": {"revision": {"type": "integer", "minimum": 0, "description": "0 is the version's own catalog."}},
    "examples": [{"revision": 3}],
}

_PLAN = {
    "type": "object",
    "required": ["version", "steps"],
    "additionalProperties": False,
    "properties": {
        "version": {**_NAME, "description": "Has weight, and is not the default."},
        "steps": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["coverage", "seconds"],
                "properties": {
                    "coverage": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                    "seconds": {"type": "number", "exclusiveMinimum": 0},
                },
            },
        },
        "guardrails": {
            "type": "object",
            "properties": {
                "errors": {"type": "boolean", "default": True},
                "p99_ms": {"type": ["number", "null"], "exclusiveMinimum": 0},
                "ctr_margin": {"type": ["number", "null"], "minimum": 0},
            },
        },
        "promote": {
            "type": ["object", "null"],
            "required": ["seconds", "margin"],
            "properties": {"seconds": {"type": "number", "minimum": 0}, "margin": {"type": "number"}},
        },
    },
}


def _flag(name: str, default: bool, about: str) -> dict[str, Any]:
    schema = {"type": "boolean", "default": default}
    return {"name": name, "in": "query", "description": about, "schema": schema}


def _body(schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    return {"required": required, "content": {"application/json": {"schema": schema}}}


_DRY_RUN = _flag("dry_run", False, "Only say what would move.")

PUT_WEIGHTS: dict[str, Any] = {
    "description": f"Replaces the whole split at once; only `weights` is required, the rest keeps its value. {_ADMIN}",
    "parameters": [_DRY_RUN, _IF_MATCH],
    "requestBody": _body(_SPLIT, required=True),
}
ROLLBACK: dict[str, Any] = {
    "description": "Restores what the current split replaced, each time one further back, or the split of an epoch; "
    f"always as a new epoch. {_ADMIN}",
    "parameters": [_DRY_RUN, _IF_MATCH],
    "requestBody": _body(_EPOCH, required=False),
}
PUT_MODEL: dict[str, Any] = {
    "description": f"Loads a version in every worker of every replica, at weight 0. {_ADMIN}",
    "parameters": [_flag("wait", True, "Answer only once it is ready everywhere; else 202 at once.")],
}
PUT_CATALOG: dict[str, Any] = {
    "description": "Switches a version that is ready to a catalog revision, in every worker of every replica; each "
    "request sees the old one or the new one whole. 404 for an unknown version or revision, 409 where the version is "
    f"not ready, 422 where the revision fails its check: then nothing changes. {_ADMIN}",
    "requestBody": _body(_REVISION, required=True),
}
DELETE_MODEL: dict[str, Any] = {
    "description": "Drains and unloads a version everywhere; 409 while it has weight, is the default or shadows. "
    f"{_ADMIN}",
}
PUT_PLAN: dict[str, Any] = {
    "description": "Begins a plan with its first step. 404 for an unknown version or experiment, 409 where the version "
    "is the default, has no weight or all of it, or is not ready, or where the experiment is over; 412 where "
    f"`If-Match` names another epoch. {_ADMIN}",
    "requestBody": _body(_PLAN, required=True),
}
DELETE_PLAN: dict[str, Any] = {"description": f"Stops the plan where it is; the split stays as it is. {_ADMIN}"}
