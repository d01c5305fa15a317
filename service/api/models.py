"""/models: what is loaded, how the traffic is split, and the changes to both."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from service import changes, logs, rollout
from service.api import listing, openapi_models
from service.api.changing import admin_of, body_of, terms_of
from service.api.parts import parts_of
from service.api.proposal import BadBody, parse_nothing, parse_proposal, parse_revision, parse_rollback
from service.api.tags import etag
from service.changes import Changed, Stale, Terms, Unknown
from service.feature_names import shorten
from service.names import RULE, is_version
from service.scoring.artifact import version_names
from service.scoring.revisions import revision_numbers
from service.scoring.schema import nearest
from service.scoring.values import Fault

FLAGS = {"true": True, "1": True, "false": False, "0": False}
HISTORY = 1000

router = APIRouter(tags=["models"])


@router.get("/models")
async def get_models(request: Request) -> Response:
    """Every version, the split, and how far each replica is."""
    parts = parts_of(request)
    _flags(request)
    found = await asyncio.to_thread(listing.manifests, parts["settings"].artifacts)
    document, workers = await parts["control"].read(lambda view: (view.document(), view.workers()))
    return _json(listing.listing(document, workers, found), epoch=document.epoch)


@router.put("/models/weights", openapi_extra=openapi_models.PUT_WEIGHTS)
async def put_weights(request: Request) -> Response:
    """Replace the whole split at once; `?dry_run=true` only says what would move."""
    who = admin_of(request)
    flags = _flags(request, "dry_run")
    proposal = parse_proposal(await body_of(request))
    terms = await terms_of(request, who, dry_run=flags.get("dry_run", False))
    return await _change(request, lambda change: changes.put_weights(change, proposal, terms), terms)


@router.post("/models/weights/rollback", openapi_extra=openapi_models.ROLLBACK)
async def rollback(request: Request) -> Response:
    """Undo the current split, or go back to the one of `{"epoch": n}`."""
    who = admin_of(request)
    flags = _flags(request, "dry_run")
    epoch = parse_rollback(await body_of(request))
    terms = await terms_of(request, who, dry_run=flags.get("dry_run", False))
    return await _change(request, lambda change: changes.rollback(change, epoch, terms), terms)


@router.get("/models/weights/history")
async def history(request: Request) -> Response:
    """Every change of the split, newest first."""
    _flags(request)
    rows = await parts_of(request)["control"].read(lambda view: view.history(HISTORY))
    return _json({"history": listing.past(rows)})


@router.put("/models/{version}/catalog", openapi_extra=openapi_models.PUT_CATALOG)
async def put_catalog(version: str, request: Request) -> Response:
    """Switch a version that is ready to a catalog revision, in every worker."""
    parts = parts_of(request)
    who = admin_of(request)
    _check_name(version)
    _flags(request)
    revision = parse_revision(await body_of(request))
    if version not in await _known(request):
        raise Unknown(f"no version '{version}' in the artifacts")
    there = await asyncio.to_thread(revision_numbers, parts["settings"].artifacts / version)
    if revision not in there:
        listed = f"there are {', '.join(map(str, there))}" if there else "it has no catalog"
        raise Unknown(f"no catalog revision {revision} of version '{version}' ({listed})")
    logs.event("catalog asked for", version=version, revision=revision, who=who)
    await rollout.switch_catalog(parts["control"], parts["registry"], version, revision)
    return await _model(version, request, with_schema=False)


@router.get("/models/{version:path}")
async def get_model(version: str, request: Request) -> Response:
    """One version with its catalog revisions and its feature schema."""
    _check_name(version)
    _flags(request)
    return await _model(version, request, with_schema=True)


@router.put("/models/{version:path}", openapi_extra=openapi_models.PUT_MODEL)
async def put_model(version: str, request: Request) -> Response:
    """Load a version in every worker, at weight 0; `?wait=false` answers before it is ready."""
    parts = parts_of(request)
    who = admin_of(request)
    _check_name(version)
    wait = _flags(request, "wait").get("wait", True)
    parse_nothing(await body_of(request))
    if version not in await _known(request):
        raise Unknown(f"no version '{version}' in the artifacts")
    logs.event("load asked for", version=version, who=who)
    if not wait:
        await rollout.want(parts["control"], version)
        return _json({"version": version, "state": "loading"}, status=202)
    await rollout.load(parts["control"], parts["registry"], version)
    return _json({"version": version, "state": "ready"})


@router.delete("/models/{version:path}", openapi_extra=openapi_models.DELETE_MODEL)
async def delete_model(version: str, request: Request) -> Response:
    """Drain and unload a version in every worker."""
    parts = parts_of(request)
    who = admin_of(request)
    _check_name(version)
    _flags(request)
    gone = await rollout.unload(parts["control"], version, await _known(request), parts["settings"].drain_seconds)
    logs.event("unloaded", version=version, who=who)
    return _json({"version": version, "state": "available" if gone else "unloading"}, status=200 if gone else 202)


async def _model(version: str, request: Request, *, with_schema: bool) -> Response:
    parts = parts_of(request)
    root = parts["settings"].artifacts
    found = await asyncio.to_thread(listing.manifests, root)
    document, workers = await parts["control"].read(lambda view: (view.document(), view.workers()))
    if version not in {*found, *document.loaded, *document.needed}:
        raise Unknown(f"no version '{version}'{nearest(version, found)}")
    manifest = found.get(version)
    answer = listing.model(version, document, workers, manifest)
    answer["catalog"] = await asyncio.to_thread(listing.catalog, root / version, document.catalog(version))
    if with_schema:
        answer["schema"] = manifest["schema"] if isinstance(manifest, dict) else None
    return _json(answer, epoch=document.epoch)


async def _change(request: Request, edit: Any, terms: Terms) -> Response:
    control = parts_of(request)["control"]
    try:
        done: Changed = await control.change(edit)
    except Stale as stale:
        body = {"detail": str(stale), **listing.split(stale.document)}
        return _json(body, status=412, epoch=stale.document.epoch)
    answer = listing.changed(done)
    if terms.dry_run:
        return _json({**answer, "dry_run": True}, epoch=done.old.epoch)
    if done.new_epoch:
        logs.event("weights", who=terms.who, was=done.old.traffic(), now=answer)
        control.apply(done.new)
        await rollout.acknowledged(control, done.new.epoch)
    return _json(answer, epoch=done.new.epoch)


async def _known(request: Request) -> Collection[str]:
    return await asyncio.to_thread(version_names, parts_of(request)["settings"].artifacts)


def _flags(request: Request, *known: str) -> dict[str, bool]:
    """The query's flags. One that is not known is refused: a misspelt dry_run must not make the change."""
    faults = []
    flags: dict[str, bool] = {}
    for name, value in request.query_params.multi_items():
        if name in flags:
            faults.append(Fault(("query", name), "given twice", "repeated"))
        elif name not in known:
            shown = shorten(name)
            faults.append(Fault(("query", shown), f"no such parameter{nearest(shown, known)}", "extra_forbidden"))
        elif value.lower() not in FLAGS:
            faults.append(Fault(("query", name), "true or false", "bool_parsing"))
        else:
            flags[name] = FLAGS[value.lower()]
    if faults:
        raise BadBody(faults)
    return flags


def _check_name(version: str) -> None:
    if not is_version(version):
        raise BadBody([Fault(("path", "version"), f"not a version's name: {RULE}, and not 'weights'", "version_name")])


def _json(content: object, *, status: int = 200, epoch: int | None = None) -> Response:
    headers = {} if epoch is None else {"ETag": etag(epoch)}
    return Response(orjson.dumps(content), status, headers, media_type="application/json")
