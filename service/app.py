"""The composition: what one worker consists of, who opens it and in what order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from service.api import experiments, feedback, health, models, openapi, plans
from service.api.parts import Parts
from service.api.predict import Predict
from service.config import Settings
from service.control import Control, Seat
from service.errors import install
from service.experiments.beside import PlanReports, ShadowReports, hears
from service.experiments.capture import Capture
from service.experiments.ledger import Ledger
from service.experiments.planner import Planner
from service.experiments.reports import Reports
from service.experiments.settings import ReportSettings
from service.experiments.shadow import Shadowing, keeping
from service.experiments.watch import Watch
from service.metrics import Metrics
from service.opening import Opening
from service.registry import Registry
from service.release import installed
from service.scoring.device import limit_memory
from service.state import StateStore


class State(Parts):
    """The lifespan's state: the parts, and the endpoint that is more than a function."""

    predict: Predict


def create_app(
    settings: Settings,
    *,
    device: str = "cpu",
    seat: Seat | None = None,
    metrics_folder: Path | None = None,
    opening: Opening | None = None,
) -> FastAPI:
    """The app of one worker. `metrics_folder` is shared by its siblings; without one the worker counts for itself.

    `device` is where its versions run; without `opening` it opens them by itself. The lifespan ends its start when the
    worker may take connections.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[State]:
        async with AsyncExitStack() as stack:
            yield await _open(stack, settings, device, seat, metrics_folder, opening)

    app = App(
        title="twinrank",
        summary="Click predictions by several versions at once, and the split of the traffic between them",
        version=installed("twinrank"),
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,
    )
    # A bare route, and the first to be looked at: FastAPI's own would parse and validate what this one does itself.
    app.router.routes.insert(0, Route("/predict", _Predict(), methods=["POST"], include_in_schema=False))
    app.include_router(health.router)
    app.include_router(models.router)
    app.include_router(experiments.router)
    app.include_router(feedback.router)
    app.include_router(plans.router)
    app.openapi = partial(_described, app.openapi)  # type: ignore[method-assign]  # FastAPI's documented way to extend it
    install(app)
    return app


async def _open(
    stack: AsyncExitStack,
    settings: Settings,
    device: str,
    seat: Seat | None,
    metrics_folder: Path | None,
    opening: Opening | None,
) -> State:
    """Open everything, what is used before what uses it; the stack closes it in the opposite order."""
    store = stack.enter_context(StateStore.open(settings.state))
    metrics = stack.enter_context(Metrics(metrics_folder, gpu_memory=_gpu_memory(device)))
    # The workers share the device, and may not fail each other's loads.
    limit_memory(device, settings.gpu_memory_fraction / settings.workers)
    registry = await stack.enter_async_context(Registry(settings, metrics, device=device, opening=opening))
    control = await stack.enter_async_context(Control(settings, store, registry, metrics, seat))
    ledger = await stack.enter_async_context(Ledger(settings, store))
    reports = Reports(
        ledger,
        ReportSettings(planned=settings.planned_impressions),
        shadow=ShadowReports(control, settings.artifacts),
        plan=PlanReports(control),
    )
    watch = Watch()
    await stack.enter_async_context(Planner(control, watch, hear=hears(reports)))
    shadowing = Shadowing(control, registry, metrics, max_rows=settings.max_rows, keep=keeping(ledger))
    shadow = await stack.enter_async_context(shadowing)
    after = []
    if settings.capture is not None:
        capture = Capture(settings.capture, settings.capture_fraction, metrics)
        after.append(await stack.enter_async_context(capture))
    endpoint = Predict(settings, registry, control, metrics, ledger, watch=watch, shadow=shadow, after=after)
    predict = await stack.enter_async_context(endpoint)
    await control.accept()
    return State(
        settings=settings,
        store=store,
        metrics=metrics,
        registry=registry,
        control=control,
        reports=reports,
        ledger=ledger,
        predict=predict,
    )


class App(FastAPI):
    """FastAPI, but that POST /predict goes to its route past the middleware, which has nothing to add there."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/predict" and scope["method"] == "POST":
            await scope["state"]["predict"](scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class _Predict:
    """The route is made before the lifespan opens what answers it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        predict: Predict = scope["state"]["predict"]
        await predict(scope, receive, send)


def _described(original: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    document = original()
    document["paths"].setdefault("/predict", openapi.PREDICT)
    return document


def _gpu_memory(device: str) -> Callable[[], Mapping[str, int]]:
    if not device.startswith("cuda"):
        return dict
    import torch

    return lambda: {device: torch.cuda.memory_reserved(device)}
