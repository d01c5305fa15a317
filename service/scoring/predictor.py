"""Requests to probabilities by one version: a batch of requests is encoded as one, and scored as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from service.scoring.batch import Batch
from service.scoring.candidates import CandidateFinder, Items, find_keys
from service.scoring.catalog import Catalog
from service.scoring.encoded import Encoded, Floats, Ints, add_counts
from service.scoring.engine import Engine
from service.scoring.features import FeatureEncoder
from service.scoring.half import Half
from service.scoring.keys import Odd
from service.scoring.reader import Lazy, ReadKeys, ReadRows, read_ids
from service.scoring.rows import RowEncoder
from service.scoring.schema import FeatureSchema
from service.scoring.values import EncodeError, Fault

Values = Mapping[str, object]


class RowRequest(NamedTuple):
    """Rows that each carry all their features; `read` are the same, where a version has read them already."""

    instances: Sequence[Values]
    explain: bool = False
    read: ReadRows | None = None


class RankRequest(NamedTuple):
    """One user in one context, and the candidates: item ids, or objects with the item key and item features.

    `keys` are the same candidates, where they have been read already: item ids alone. `read` is the row of user and
    context, where a version has read it already.
    """

    user: Values
    candidates: Sequence[object]
    context: Values = MappingProxyType({})
    explain: bool = False
    keys: ReadKeys | None = None
    read: ReadRows | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """A row's logit in its parts: `wide` is the sum of `terms` (name, contribution), `wide` + `deep` the logit.

    `corrected` says that the score is not this logit's sigmoid: the module corrects it first (calibration).
    """

    wide: float
    deep: float
    terms: list[tuple[str, float]]
    corrected: bool = False


class Predictor:
    """Scores requests with one version; safe to call from several threads.

    `catalog` may be replaced: what was encoded before is scored with the one that it was encoded with.
    """

    def __init__(
        self, version: str, encoder: FeatureEncoder, engine: Engine, catalog: Catalog | None, *, corrected: bool = False
    ) -> None:
        self.version = version
        self.encoder = encoder
        self.engine = engine
        self.catalog = catalog
        self.corrected = corrected  # whether the module changes logits before the sigmoid
        self._rows = RowEncoder(encoder)
        self._reader = self._rows.reader(name for name in (encoder.schema.unit, encoder.schema.item) if name)
        self._users = RowEncoder(encoder, ("user", "context"))
        self._user_reader = self._users.reader([encoder.schema.unit] if encoder.schema.unit else [])
        items = RowEncoder(encoder, ("item",))
        self._finder = CandidateFinder(encoder.schema, encoder.layout, items.encode) if encoder.schema.item else None
        self._user_names = {feature.name for feature in encoder.schema.of_side("user")}
        self._context_names = {feature.name for feature in encoder.schema.of_side("context")}

    @property
    def schema(self) -> FeatureSchema:
        return self.encoder.schema

    @property
    def device(self) -> str:
        return str(self.engine.device)

    @property
    def computed_by(self) -> str:
        """See Engine.computed_by."""
        return self.engine.computed_by

    def read_candidates(
        self, data: Any, most: int, decode: Callable[[], Any]
    ) -> tuple[Sequence[object], ReadKeys] | None:
        """As `read_rows`, of 'candidates' that are item ids alone."""
        if self.catalog is None:
            return None
        keys = read_ids(data, most, integers=self.catalog.items.integers)
        return None if keys is None else (Lazy(len(keys.keys), decode), keys)

    def read_user(self, user: Any, context: Any) -> ReadRows | None:
        """The row of these JSON objects of the user's and the context's features; None as for `read_rows`."""
        return None if self._user_reader is None else self._user_reader.read_parts(user, context)

    def read_rows(self, data: Any, most: int, decode: Callable[[], Any]) -> RowRequest | None:
        """The request whose 'instances' are this JSON, at most so many; None where it takes more than a glance.

        `decode` gives the same rows, should they be looked at after all.
        """
        found = self._reader.read(data, most) if self._reader is not None else None
        return None if found is None else RowRequest(Lazy(found.rows, decode), read=found)

    def has_read(self, request: RowRequest | RankRequest) -> bool:
        """Whether this version has read the request: then it knows all of its names."""
        if isinstance(request, RowRequest):
            return request.read is not None and request.read.reader is self._reader
        return self._has_read_user(request) and request.keys is not None

    def encode(self, requests: Sequence[RowRequest | RankRequest], catalog: Catalog | None = None) -> Batch:
        """Encode requests as one, against the present catalog or the one given.

        EncodeError where any has a fault; a request that is alone has its faults placed as in its body.
        """
        plain = [one for one in requests if isinstance(one, RowRequest)]
        ranked = [one for one in requests if isinstance(one, RankRequest)]
        whole = self._encode_plain(plain) if plain else None
        users, items = self._encode_rankings(ranked, catalog or self.catalog) if ranked else (None, None)
        parts = [one for one in (whole, users, None if items is None else items.fresh) if one is not None]
        ranks = [isinstance(one, RankRequest) for one in requests]
        sizes = [len(one.candidates) if isinstance(one, RankRequest) else len(one.instances) for one in requests]
        unknown, missing = add_counts(one.unknown for one in parts), add_counts(one.missing for one in parts)
        batch = Batch(sizes, ranks, whole, users, items, unknown, missing)
        if ranked and self.encoder.multiplies_bags:
            self._check_pairs(batch)
        return batch

    def score(self, batch: Batch) -> list[Floats]:
        """Probabilities of each request, in its order; a non-finite score stays visible.

        Whole rows of all requests share one forward, the pairs of all ranking requests one join.
        """
        if batch.users is not None and batch.items is not None and self.engine.has_halves:
            whole = None if batch.whole is None else self.engine.forward(batch.whole)
            half, rows = self._item_half(batch.items)
            return batch.split(whole, self.engine.serve(batch.users, half, rows, batch.index))
        scores = self.engine.forward(batch.rows())
        first = 0 if batch.whole is None else batch.whole.rows
        return batch.split(scores[:first], scores[first:])

    def scores_of(self, request: RowRequest | RankRequest) -> Floats:
        """Probabilities of one request's rows; raises EncodeError."""
        return self.score(self.encode([request]))[0]

    def explain(self, batch: Batch) -> list[Explanation]:
        """What each row's score is made of. The engine must have halves."""
        terms, deep = self.engine.explain(batch.rows())
        names = self.encoder.layout.wide_terms()
        return [
            Explanation(float(np.sum(row)), float(rest), list(zip(names, row.tolist(), strict=True)), self.corrected)
            for row, rest in zip(terms.astype(np.float64), deep, strict=True)
        ]

    def _item_half(self, items: Items) -> tuple[Half, Ints]:
        """Items' halves, and which of them the candidates are: those of the catalog are ready, fresh ones made here."""
        half = items.catalog.half
        if half is None:
            return self.engine.items(items.encoded()), np.arange(len(items.rows))
        if items.fresh is None:
            return half, items.rows
        known = items.rows[items.rows >= 0]
        pool = Half.concat([self.engine.take(half, known), self.engine.items(items.fresh)])
        return pool, items.order(len(known))

    def _encode_plain(self, requests: Sequence[RowRequest]) -> Encoded:
        runs = [(has_read, list(run)) for has_read, run in groupby(requests, self.has_read)]
        return Encoded.concat([self._finish(run) if has_read else self._encode_rows(run) for has_read, run in runs])

    def _finish(self, requests: Sequence[RowRequest]) -> Encoded:
        try:
            return self._rows.finish([one.read for one in requests if one.read is not None])
        except Odd:
            return self._encode_rows(requests)

    def _encode_rows(self, requests: Sequence[RowRequest]) -> Encoded:
        rows = [row for one in requests for row in one.instances]
        try:
            return self._rows.encode(rows)
        except EncodeError as error:
            raise _placed(error, lambda row, name: ("instances", row, name)) from None

    def _encode_rankings(self, requests: Sequence[RankRequest], catalog: Catalog | None) -> tuple[Encoded, Items]:
        assert catalog is not None  # the caller asked for the ranking form of a version that has an item key
        assert self._finder is not None  # as above
        found = self._find(requests, catalog)
        candidates = requests[0].candidates
        if found is None and len(requests) > 1:
            candidates = [item for one in requests for item in one.candidates]
        try:
            users = self._encode_users(requests)
        except EncodeError as error:
            sides = {feature.name: feature.side for feature in self.schema.features}
            faults = _placed(error, lambda _, name: (sides[name], name)).faults
            try:
                self._finder.find(candidates, catalog)
            except EncodeError as more:
                faults = [*faults, *more.faults]
            raise EncodeError(faults) from None
        return users, self._finder.find(candidates, catalog) if found is None else found

    def _encode_users(self, requests: Sequence[RankRequest]) -> Encoded:
        if all(map(self._has_read_user, requests)):
            with suppress(Odd):
                return self._users.finish([one.read for one in requests if one.read is not None])
        return self._users.encode([self._user(one) for one in requests])

    def _has_read_user(self, request: RankRequest) -> bool:
        return request.read is not None and request.read.reader is self._user_reader

    def _find(self, requests: Sequence[RankRequest], catalog: Catalog) -> Items | None:
        """The candidates of all requests where these have been read, and the catalog has each."""
        keys = [one.keys.keys for one in requests if one.keys and one.keys.integers == catalog.items.integers]
        return find_keys(np.concatenate(keys), catalog) if len(keys) == len(requests) else None

    def _user(self, request: RankRequest) -> Values:
        """One row of the user's and the context's features, each from its own object alone."""
        user, context = request.user, request.context
        if not self._context_names.isdisjoint(user):
            user = {name: value for name, value in user.items() if name in self._user_names}
        if not context:
            return user
        return {**user, **{name: value for name, value in context.items() if name in self._context_names}}

    def _check_pairs(self, batch: Batch) -> None:
        assert batch.users is not None  # there are rankings
        assert batch.items is not None  # as above
        try:
            self.encoder.check_pairs(Encoded.beside(batch.users.take(batch.index), batch.items.encoded()))
        except EncodeError as error:
            raise _placed(error, lambda row, _: ("candidates", row)) from None


def _placed(error: EncodeError, place: Callable[[int, str], tuple[str | int, ...]]) -> EncodeError:
    """The same faults, moved from (row, feature) to their place in the body."""
    return EncodeError([Fault(place(*_row_and_name(fault)), fault.msg, fault.type) for fault in error.faults])


def _row_and_name(fault: Fault) -> tuple[int, str]:
    row, name = (*fault.loc, "")[:2]
    return int(row), str(name)
