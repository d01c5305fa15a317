"""What a version's batcher runs: the requests encoded and scored together, or each alone where one has a fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from service.feature_names import MAX_FAULTS, FeatureNames, Ignored
from service.scoring.batch import Batch
from service.scoring.catalog import Catalog
from service.scoring.encoded import Floats, add_counts
from service.scoring.known import KnownNames
from service.scoring.out_of_memory import give_back, is_out_of_memory
from service.scoring.predictor import Explanation, Predictor, RankRequest, RowRequest
from service.scoring.values import EncodeError, Fault

Request = RowRequest | RankRequest


class ScoringFailed(Exception):
    """Something broke while this request was encoded; the cause is chained."""


class OutOfMemory(Exception):
    """There was no memory for this request, even alone; a smaller one, or the same later, may find it."""


class NonFiniteScore(Exception):
    """The model gave this request a score that is no number."""


class Scored(NamedTuple):
    """The answer to one request: B probabilities; `unknown_items` is None in row form."""

    scores: Floats
    unknown_items: int | None
    explanations: list[Explanation] | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted in one batch: all its finite scores, and values by feature.

    `ignored` are the names left aside that some version knows, `unlisted` counts the others.
    """

    scores: Floats
    unknown: dict[str, int]
    missing: dict[str, int]
    ignored: dict[str, int]
    unlisted: int


def row_count(request: Request) -> int:
    """How many rows a request scores."""
    return len(request.instances) if isinstance(request, RowRequest) else len(request.candidates)


class Scorer:
    """Requests to scores by one version; `known()` gives the names of all versions, as they are now.

    `count` is told what each batch held, before its callers have their answers.
    """

    def __init__(
        self,
        predictor: Predictor,
        known: Callable[[], KnownNames],
        *,
        ignore_unknown: bool = False,
        count: Callable[[Counted], None] | None = None,
    ) -> None:
        self._predictor, self._known, self._ignore_unknown = predictor, known, ignore_unknown
        self._names, self._count = FeatureNames.of(predictor.schema), count

    def __call__(self, requests: list[Request]) -> list[Scored | Exception]:
        """A result for each request: its scores, EncodeError with all its faults, ScoringFailed, NonFiniteScore or
        OutOfMemory. Where the memory does not last for all of them together, each is tried once alone."""
        try:
            return self._run(requests)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # Outside of the handler, which keeps the frames of the failure alive, and with them its tensors.
        give_back(self._predictor.device)
        if len(requests) > 1:
            return [one for request in requests for one in self([request])]
        return [OutOfMemory("no memory for this request")]

    def _run(self, requests: list[Request]) -> list[Scored | Exception]:
        catalog = self._predictor.catalog
        ignored: list[Ignored] = []
        batch = self._together(requests, catalog, ignored)
        if batch is not None:
            return self._score(requests, batch, ignored)
        ignored.clear()
        attempts = [self._alone(request, catalog, ignored) for request in requests]
        good = [(request, one) for request, one in zip(requests, attempts, strict=True) if isinstance(one, Batch)]
        if not good:
            return [one for one in attempts if isinstance(one, Exception)]
        scored = iter(self._score([one for one, _ in good], Batch.concat([one for _, one in good]), ignored))
        return [one if isinstance(one, Exception) else next(scored) for one in attempts]

    def prepare(self, request: Request, catalog: Catalog | None = None, ignored: list[Ignored] | None = None) -> Batch:
        """Check and encode one request; EncodeError lists its faults, those of names before those of values."""
        faults, left = self._names.check(request, self._known(), ignore=self._ignore_unknown)
        try:
            self._check_form(request)
            batch = self._predictor.encode([request], catalog)
        except EncodeError as error:
            raise EncodeError([*faults, *error.faults][:MAX_FAULTS]) from None
        if faults:
            raise EncodeError(faults)
        if left is not None and ignored is not None:
            ignored.append(left)
        return batch

    def _together(self, requests: list[Request], catalog: Catalog | None, ignored: list[Ignored]) -> Batch | None:
        """The requests as one batch; None where any of them has a fault."""
        known = self._known()
        try:
            for request in requests:
                if self._predictor.has_read(request):
                    continue
                faults, left = self._names.check(request, known, ignore=self._ignore_unknown)
                self._check_form(request)
                if faults:
                    return None
                if left is not None:
                    ignored.append(left)
            return self._predictor.encode(requests, catalog)
        except Exception:  # noqa: BLE001 - each alone, it will be told whose fault it is
            return None

    def _alone(self, request: Request, catalog: Catalog | None, ignored: list[Ignored]) -> Batch | Exception:
        try:
            return self.prepare(request, catalog, ignored)
        except EncodeError as error:
            return error
        except Exception as error:  # noqa: BLE001 - whatever one request provokes, its neighbours are scored
            return _failed(error)

    def _check_form(self, request: Request) -> None:
        if isinstance(request, RankRequest) and self._predictor.schema.item is None:
            msg = f"version '{self._predictor.version}' has no item key: it answers rows ('instances') alone"
            raise EncodeError([Fault(("candidates",), msg, "no_item_key")])
        if request.explain and not self._predictor.engine.has_halves:
            msg = f"version '{self._predictor.version}' was published without explanations; train it again"
            raise EncodeError([Fault(("explain",), msg, "no_explanations")])

    def _score(self, requests: Sequence[Request], batch: Batch, ignored: Sequence[Ignored]) -> list[Scored | Exception]:
        scores = self._predictor.score(batch)
        together = np.concatenate(scores)
        finite = [True] * len(scores)
        if not np.isfinite(together).all():
            finite = [bool(np.isfinite(one).all()) for one in scores]
            together = together[np.repeat(finite, batch.sizes)]
        if self._count is not None:
            names = add_counts(one.known for one in ignored)
            unlisted = sum(one.unlisted for one in ignored)
            self._count(Counted(together, batch.unknown, batch.missing, names, unlisted))
        results: list[Scored | Exception] = []
        for request, one, right, strangers in zip(requests, scores, finite, batch.strangers(), strict=True):
            if right:
                results.append(Scored(one, strangers, self._explanations(request)))
            else:
                results.append(NonFiniteScore("the model gave a score that is not finite"))
        return results

    def _explanations(self, request: Request) -> list[Explanation] | None:
        return self._predictor.explain(self._predictor.encode([request])) if request.explain else None


def _failed(cause: Exception) -> ScoringFailed | OutOfMemory:
    if is_out_of_memory(cause):
        return OutOfMemory("no memory for this request")
    failure = ScoringFailed(f"{type(cause).__name__}: {cause}")
    failure.__cause__ = cause
    return failure
