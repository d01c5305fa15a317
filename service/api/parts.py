"""The parts of a worker that its endpoints work with: made and ended by the app's lifespan."""

from __future__ import annotations

from typing import TypedDict, cast

from starlette.requests import Request

from service.config import Settings
from service.control import Control
from service.experiments.ledger import Ledger
from service.experiments.reports import Reports
from service.metrics import Metrics
from service.registry import Registry
from service.state import StateStore


class Parts(TypedDict):
    """The lifespan's state."""

    settings: Settings
    store: StateStore
    registry: Registry
    control: Control
    metrics: Metrics
    reports: Reports
    ledger: Ledger


def parts_of(request: Request) -> Parts:
    return cast(Parts, request.scope["state"])
