"""What a version's batcher runs: each request checked and encoded alone, then one forward over all that are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from service.feature_names import MAX_FAULTS, FeatureNames, Ignored
from service.scoring.encoded import Floats
from service.scoring.known import KnownNames
from service.scoring.predictor import Explanation, Predictor, Prepared, RankRequest, RowRequest
from service.scoring.values import EncodeError, Fault

Request = RowRequest | RankRequest


class ScoringFailed(Exception):
    """Something broke while this request was encoded; the cause is chained."""


class NonFiniteScore(Exception):
    """The model gave this request a score that is no number."""


@dataclass(frozen=True, slots=True)
class Scored:
    """The answer to one request: B probabilities, and what was counted on the way."""

    scores: Floats
    unknown_items: int | None
    unknown: dict[str, int]
    missing: dict[str, int]
    ignored: Ignored | None
    explanations: list[Explanation] | None = None


def row_count(request: Request) -> int:
    """How many rows a request scores."""
    return len(request.instances) if isinstance(request, RowRequest) else len(request.candidates)


class Scorer:
    """Requests to scores by one version; `known()` gives the names of all versions, as they are now."""

    def __init__(self, predictor: Predictor, known: Callable[[], KnownNames], *, ignore_unknown: bool = False) -> None:
        self._predictor, self._known, self._ignore_unknown = predictor, known, ignore_unknown
        self._names = FeatureNames.of(predictor.schema)

    def __call__(self, requests: list[Request]) -> list[Scored | Exception]:
        """A result for each request: its scores, EncodeError with all its faults, ScoringFailed or NonFiniteScore."""
        attempts = [self._attempt(request) for request in requests]
        good = [attempt for attempt in attempts if not isinstance(attempt, Exception)]
        scores = iter(self._predictor.score([prepared for prepared, _ in good]) if good else ())
        return [
            attempt if isinstance(attempt, Exception) else self._scored(request, *attempt, next(scores))
            for request, attempt in zip(requests, attempts, strict=True)
        ]

    def prepare(self, request: Request) -> tuple[Prepared, Ignored | None]:
        """Check and encode one request; EncodeError lists its faults, those of names before those of values."""
        faults, ignored = self._names.check(request, self._known(), ignore=self._ignore_unknown)
        if isinstance(request, RankRequest) and self._predictor.schema.item is None:
            msg = f"version '{self._predictor.version}' has no item key: it answers rows ('instances') alone"
            raise EncodeError([*faults, Fault(("candidates",), msg, "no_item_key")])
        if request.explain and not self._predictor.engine.has_halves:
            msg = f"version '{self._predictor.version}' was published without explanations; train it again"
            raise EncodeError([*faults, Fault(("explain",), msg, "no_explanations")])
        try:
            prepared = self._predictor.encode(request)
        except EncodeError as error:
            raise EncodeError([*faults, *error.faults][:MAX_FAULTS]) from None
        if faults:
            raise EncodeError(faults)
        return prepared, ignored

    def _scored(
        self, request: Request, prepared: Prepared, ignored: Ignored | None, scores: Floats
    ) -> Scored | NonFiniteScore:
        if not np.isfinite(scores).all():
            return NonFiniteScore("the model gave a score that is not finite")
        explanations = self._predictor.explain(prepared) if request.explain else None
        return Scored(scores, prepared.unknown_items, prepared.unknown, prepared.missing, ignored, explanations)

    def _attempt(self, request: Request) -> tuple[Prepared, Ignored | None] | Exception:
        try:
            return self.prepare(request)
        except EncodeError as error:
            return error
        except Exception as error:  # noqa: BLE001 - whatever one request provokes, its neighbours are scored
            return _failed(error)


def _failed(cause: Exception) -> ScoringFailed:
    failure = ScoringFailed(f"{type(cause).__name__}: {cause}")
    failure.__cause__ = cause
    return failure
