"""What an orchestrator and a scraper ask."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from service.api.parts import parts_of
from service.errors import RETRY_AFTER
from service.state import StateError

router = APIRouter(tags=["health"])


@router.get("/livez")
async def livez() -> JSONResponse:
    """The process lives; says nothing of versions."""
    return JSONResponse({"status": "alive"})


@router.get("/readyz")
async def readyz(request: Request) -> JSONResponse:
    """200 where this worker answers for every version that traffic may reach; else 503 with the reason."""
    reason = parts_of(request)["control"].unready()
    if reason is None:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "unready", "reason": reason}, 503, {"Retry-After": RETRY_AFTER})


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Prometheus text (or OpenMetrics, by Accept): the sum over all workers."""
    parts = parts_of(request)
    document = parts["control"].document
    try:
        report = await parts["reports"].recent(document.experiment)
    except StateError:
        report = None  # a scrape is wanted most when the store is gone
    accept = request.headers.get("accept", "")
    body, content_type = await asyncio.to_thread(parts["metrics"].render, document, accept, report)
    return Response(body, headers={"Content-Type": content_type})
