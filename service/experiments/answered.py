"""An answer of /predict as those see it who work on it once it is sent: the shadow and the capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, overload

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

    def shown(self) -> tuple[ShownItems | None, Places]:
        """The items that the answer showed, None where they are rows, and their places in the request."""
        return shown(self.request, self.scores, self.top_k, self.item_key)


def shown(
    request: Request, scores: Floats, top_k: int | None, item_key: str | None
) -> tuple[ShownItems | None, Places]:
    """See `Answered.shown`."""
    if isinstance(request, RowRequest):
        return None, np.arange(len(scores))
    places = np.arange(len(scores)) if top_k is None else best_of(scores, top_k)
    return ShownItems(request.candidates, places, item_key), places


def best_of(scores: Floats, top_k: int) -> Places:
    """The places of the best scores, best first, ties in the request's order."""
    return np.argsort(-scores, kind="stable")[:top_k]


class ShownItems(Sequence[object]):
    """The ids of the candidates at some places, each looked up when it is asked for: mostly none is."""

    def __init__(self, candidates: Sequence[object], places: Places, item_key: str | None) -> None:
        self._candidates, self._places, self._key = candidates, places, item_key

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> object: ...
    @overload
    def __getitem__(self, index: slice) -> ShownItems: ...
    def __getitem__(self, index: int | slice) -> object:
        if isinstance(index, slice):
            return ShownItems(self._candidates, self._places[index], self._key)
        return item_id(self._candidates[self._places[index]], self._key)


def item_id(candidate: object, item_key: str | None) -> object:
    """A candidate's id as it was sent."""
    return candidate.get(item_key) if isinstance(candidate, Mapping) else candidate


class Shadow(Protocol):
    """Says which version is to score a request once it is answered, and is told of the answer."""

    def chosen(self, unit: str | None, version: str) -> str | None: ...
    def __call__(self, answered: Answered) -> None: ...


class Watching(Protocol):
    """Told of each request that was assigned, however it ended."""

    def __call__(self, experiment: str, epoch: int, version: str, reason: str, status: int, seconds: float) -> None: ...
