"""An answer of /predict as those see it who work on it once it is sent: the shadow and the capture. A value."""

from __future__ import annotations

from typing import NamedTuple

from service.experiments.tickets import Ticket
from service.scorer import Request
from service.scoring.encoded import Floats


class Answered(NamedTuple):
    """One request, the version and the way it was chosen, and its scores (B,), in the order of the request's rows.

    `unit` is the canonical text or None. `shadow` is the version that is to score it too, None where none is. `top_k`
    is as asked for, `item_key` the feature that holds an item's id.
    """

    request: Request
    unit: str | None
    version: str
    experiment: str
    reason: str
    epoch: int
    propensity: float | None
    scores: Floats
    prediction_id: str
    shadow: str | None = None
    top_k: int | None = None
    item_key: str | None = None
    ticket: Ticket | None = None
