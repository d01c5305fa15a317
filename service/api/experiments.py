"""/experiments: what was measured, in words and figures, and the counts behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from service.api.parts import parts_of
from service.changes import Unknown
from service.experiments.export import MEDIA_TYPES, Format, export
from service.feature_names import shorten
from service.scoring.schema import nearest

router = APIRouter(tags=["experiments"])


@router.get("/experiments")
async def get_experiments(request: Request) -> Response:
    """Every experiment by name, and which of them runs now."""
    parts = parts_of(request)
    current = parts["control"].document.experiment
    names = await parts["reports"].source.names()
    return _json({"experiments": [{"experiment": name, "current": name == current} for name in names]})


@router.get("/experiments/{name}")
async def get_experiment(name: str, request: Request) -> Response:
    """The verdict, every version's figures, and the state of the split."""
    found = await parts_of(request)["reports"].report(name)
    if found is None:
        raise await _unknown(name, request)
    return _json(found)


@router.get("/experiments/{name}/export")
async def get_export(name: str, request: Request, format: Format = "csv") -> Response:
    """The cells, one row an epoch, version and sub-bucket of the units."""
    evidence = await parts_of(request)["reports"].source.evidence(name)
    if evidence is None:
        raise await _unknown(name, request)
    body = await asyncio.to_thread(export, evidence, format)
    headers = {"Content-Disposition": f'attachment; filename="{name}.{format}"'}
    return Response(body, headers=headers, media_type=MEDIA_TYPES[format])


async def _unknown(name: str, request: Request) -> Unknown:
    names = await parts_of(request)["reports"].source.names()
    shown = shorten(name)
    return Unknown(f"no experiment '{shown}'{nearest(shown, names)}")


def _json(content: dict[str, Any]) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")
