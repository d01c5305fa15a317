"""/experiments/{name}/plan: begin a plan, see how far it is, stop it."""

from __future__ import annotations

import time

import orjson
from fastapi import APIRouter, Request, Response

from service import logs, rollout
from service.api import listing, openapi_models
from service.api.changing import admin_of, body_of, terms_of
from service.api.parts import parts_of
from service.api.plan_body import parse_plan
from service.api.proposal import BadBody
from service.api.tags import etag
from service.changes import Stale, Unknown
from service.experiments.course import begin, course_of, stop, told
from service.experiments.plans import Course
from service.names import RULE, is_experiment
from service.scoring.values import Fault
from service.state import plans as stored

router = APIRouter(tags=["experiments"])


@router.get("/experiments/{name}/plan")
async def get_plan(name: str, request: Request) -> Response:
    """The plan, its state and why."""
    _check_name(name)
    row = await parts_of(request)["control"].read(lambda view: stored.read_plan(view, name))
    if row is None:
        raise Unknown(f"no plan for experiment '{name}'")
    return _json(course_of(row))


@router.put("/experiments/{name}/plan", openapi_extra=openapi_models.PUT_PLAN)
async def put_plan(name: str, request: Request) -> Response:
    """Begin a plan with its first step, in the place of any other; `If-Match` is the split's."""
    who = admin_of(request)
    _check_name(name)
    plan = parse_plan(await body_of(request))
    terms = await terms_of(request, who)
    control = parts_of(request)["control"]
    try:
        course, document = await control.change(lambda change: begin(change, name, plan, terms, time.time()))
    except Stale as stale:
        body = orjson.dumps({"detail": str(stale), **listing.split(stale.document)})
        return Response(body, 412, {"ETag": etag(stale.document.epoch)}, media_type="application/json")
    logs.event("plan begun", experiment=name, version=plan.version, who=who, epoch=document.epoch)
    control.apply(document)
    await rollout.acknowledged(control, document.epoch)
    return _json(course)


@router.delete("/experiments/{name}/plan", openapi_extra=openapi_models.DELETE_PLAN)
async def delete_plan(name: str, request: Request) -> Response:
    """Stop the plan where it is; the split stays."""
    who = admin_of(request)
    _check_name(name)
    course = await parts_of(request)["control"].change(lambda change: stop(change, name, who))
    logs.event("plan stopped", experiment=name, who=who)
    return _json(course)


def _json(course: Course) -> Response:
    return Response(orjson.dumps(told(course)), media_type="application/json")


def _check_name(name: str) -> None:
    if not is_experiment(name):
        raise BadBody([Fault(("path", "name"), f"not an experiment's name: {RULE}", "name")])
