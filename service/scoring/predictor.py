"""Requests to probabilities by one version: encode each request alone, then score many together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from service.scoring.candidates import Items, find_items, joined_items
from service.scoring.catalog import Catalog
from service.scoring.encoded import Encoded, Floats, add_counts
from service.scoring.engine import Engine
from service.scoring.features import FeatureEncoder
from service.scoring.half import Half
from service.scoring.schema import FeatureSchema
from service.scoring.values import EncodeError, Fault

Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RowRequest:
    """Rows that each carry all their features."""

    instances: Sequence[Values]
    explain: bool = False


@dataclass(frozen=True, slots=True)
class RankRequest:
    """One user in one context, and the candidates: item ids, or objects with the item key and item features."""

    user: Values
    candidates: Sequence[object]
    context: Values = field(default_factory=dict)
    explain: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """A row's logit in its parts: `wide` is the sum of `terms` (name, contribution), `wide` + `deep` the logit."""

    wide: float
    deep: float
    terms: list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """An encoded request: `whole` rows, or one row of the user's columns and the candidates' `items`.

    `unknown_items` is None in row form; the counts are of values that the request sent.
    """

    rows: int
    whole: Encoded | None = None
    user: Encoded | None = None
    items: Items | None = None
    unknown_items: int | None = None
    unknown: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)


class Predictor:
    """Scores requests with one version; safe to call from several threads."""

    def __init__(self, version: str, encoder: FeatureEncoder, engine: Engine, catalog: Catalog | None) -> None:
        self.version = version
        self.encoder = encoder
        self.engine = engine
        self.catalog = catalog

    @property
    def schema(self) -> FeatureSchema:
        return self.encoder.schema

    @property
    def device(self) -> str:
        return str(self.engine.device)

    def encode(self, request: RowRequest | RankRequest) -> Prepared:
        """Encode one request; raises EncodeError whose faults are placed as in the body."""
        if isinstance(request, RowRequest):
            encoded = self._rows(request.instances)
            return Prepared(encoded.rows, encoded, unknown=encoded.unknown, missing=encoded.missing)
        assert self.catalog is not None  # the caller asked for the ranking form of a version that has an item key
        try:
            user = self._user(request)
        except EncodeError as error:
            raise EncodeError([*error.faults, *self._item_faults(request.candidates, self.catalog)]) from None
        items = find_items(request.candidates, self.catalog, self.encoder)
        if self.encoder.multiplies_bags:
            self._check_pairs(user, items, self.catalog)
        fresh = (user,) if items.fresh is None else (user, items.fresh)
        unknown, missing = add_counts(one.unknown for one in fresh), add_counts(one.missing for one in fresh)
        return Prepared(len(items.rows), None, user, items, items.unknown_items, unknown, missing)

    def score(self, prepared: Sequence[Prepared]) -> list[Floats]:
        """Probabilities of each request, in its order; a non-finite score stays visible.

        Whole rows of all requests share one forward, the pairs of all ranking requests one join.
        """
        halved = self.engine.has_halves
        whole = [(n, self._whole(one)) for n, one in enumerate(prepared) if one.whole is not None or not halved]
        ranked = [(n, one.user, one.items) for n, one in enumerate(prepared) if one.user and one.items and halved]
        answers: dict[int, Floats] = {}
        if whole:
            scores = self.engine.forward(Encoded.concat([encoded for _, encoded in whole]))
            ends = np.cumsum([encoded.rows for _, encoded in whole])[:-1]
            answers |= zip((n for n, _ in whole), np.split(scores, ends), strict=True)
        if ranked:
            scores = self._join([user for _, user, _ in ranked], [items for _, _, items in ranked])
            ends = np.cumsum([len(items.rows) for _, _, items in ranked])[:-1]
            answers |= zip((n for n, _, _ in ranked), np.split(scores, ends), strict=True)
        return [answers[n] for n in range(len(prepared))]

    def explain(self, prepared: Prepared) -> list[Explanation]:
        """What each row's score is made of. The engine must have halves."""
        terms, deep = self.engine.explain(self._whole(prepared))
        names = self.encoder.layout.wide_terms()
        return [
            Explanation(float(np.sum(row)), float(rest), list(zip(names, row.tolist(), strict=True)))
            for row, rest in zip(terms.astype(np.float64), deep, strict=True)
        ]

    def _join(self, users: Sequence[Encoded], items: Sequence[Items]) -> Floats:
        """Scores of every candidate of each request, one after the other."""
        assert self.catalog is not None  # there are items
        user = self.engine.user(Encoded.concat(users))
        index = np.repeat(np.arange(len(users)), [len(one.rows) for one in items])
        return self.engine.join(user, self._item_half(joined_items(items), self.catalog), index)

    def _item_half(self, items: Items, catalog: Catalog) -> Half:
        """The candidates' halves: those of the catalog are ready, those of fresh rows are made here."""
        if catalog.half is None:
            return self.engine.items(items.encoded(catalog))
        if items.fresh is None:
            return self.engine.take(catalog.half, items.rows)
        known = items.rows[items.rows >= 0]
        pool = Half.concat([self.engine.take(catalog.half, known), self.engine.items(items.fresh)])
        return self.engine.take(pool, items.order(len(known)))

    def _whole(self, one: Prepared) -> Encoded:
        if one.whole is not None:
            return one.whole
        assert self.catalog is not None  # a ranking request
        assert one.user is not None  # as above
        assert one.items is not None  # as above
        return Encoded.join(one.user, one.items.encoded(self.catalog))

    def _check_pairs(self, user: Encoded, items: Items, catalog: Catalog) -> None:
        try:
            self.encoder.check_pairs(Encoded.join(user, items.encoded(catalog)))
        except EncodeError as error:
            raise _placed(error, lambda row, _: ("candidates", row)) from None

    def _item_faults(self, candidates: Sequence[object], catalog: Catalog) -> list[Fault]:
        try:
            find_items(candidates, catalog, self.encoder)
        except EncodeError as error:
            return error.faults
        return []

    def _rows(self, instances: Sequence[Values]) -> Encoded:
        try:
            return self.encoder.encode_rows(instances)
        except EncodeError as error:
            raise _placed(error, lambda row, name: ("instances", row, name)) from None

    def _user(self, request: RankRequest) -> Encoded:
        sides = {feature.name: feature.side for feature in self.schema.features}
        row = {name: value for name, value in request.user.items() if sides.get(name) == "user"}
        row |= {name: value for name, value in request.context.items() if sides.get(name) == "context"}
        try:
            return self.encoder.encode_rows([row], sides=("user", "context"))
        except EncodeError as error:
            raise _placed(error, lambda _, name: (sides[name], name)) from None


def _placed(error: EncodeError, place: Callable[[int, str], tuple[str | int, ...]]) -> EncodeError:
    """The same faults, moved from (row, feature) to their place in the body."""
    return EncodeError([Fault(place(*_row_and_name(fault)), fault.msg, fault.type) for fault in error.faults])


def _row_and_name(fault: Fault) -> tuple[int, str]:
    row, name = (*fault.loc, "")[:2]
    return int(row), str(name)
