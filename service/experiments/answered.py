"""An answer of /predict as those see it who work on it once it is sent: the shadow and the capture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from service.experiments.tickets import Ticket
from service.scorer import Request
from service.scoring.encoded import Floats
from service.scoring.predictor import RowRequest

Places = npt.NDArray[np.intp]


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

    def shown(self) -> tuple[list[object] | None, Places]:
        """The items that the answer showed, None where they are rows, and their places in the request."""
        if isinstance(self.request, RowRequest) or self.top_k is None:
            places = np.arange(len(self.scores))
        else:
            places = np.argsort(-self.scores, kind="stable")[: self.top_k]
        if isinstance(self.request, RowRequest):
            return None, places
        candidates = [self.request.candidates[place] for place in places.tolist()]
        key = self.item_key
        return [one.get(key) if isinstance(one, Mapping) else one for one in candidates], places


class Shadow(Protocol):
    """Says which version is to score a request once it is answered, and is told of the answer."""

    def chosen(self, unit: str | None, version: str) -> str | None: ...
    def __call__(self, answered: Answered) -> None: ...


class Watching(Protocol):
    """Told of each request that was assigned, however it ended."""

    def __call__(self, experiment: str, epoch: int, version: str, reason: str, status: int, seconds: float) -> None: ...
