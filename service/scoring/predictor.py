"""Requests to probabilities by one version: encode each request alone, then score many together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from service.scoring.catalog import Catalog
from service.scoring.encoded import Encoded, Floats, Ints
from service.scoring.engine import Engine
from service.scoring.features import FeatureEncoder
from service.scoring.schema import FeatureSchema
from service.scoring.values import EncodeError, Fault, ValueFault, category_text

Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RowRequest:
    """Rows that each carry all their features."""

    instances: Sequence[Values]


@dataclass(frozen=True, slots=True)
class RankRequest:
    """One user in one context, and the candidates: item ids, or objects with the item key and item features."""

    user: Values
    candidates: Sequence[object]
    context: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prepared:
    """An encoded request; `unknown_items` is None in row form, the counts are of values that the request sent."""

    encoded: Encoded
    unknown_items: int | None
    unknown: dict[str, int]
    missing: dict[str, int]

    @property
    def rows(self) -> int:
        return self.encoded.rows


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
            return Prepared(encoded, None, encoded.unknown, encoded.missing)
        try:
            user = self._user(request)
        except EncodeError as error:
            raise EncodeError([*error.faults, *self._item_faults(request.candidates)]) from None
        items, unknown_items = self._items(request.candidates)
        joined = Encoded.join(user, items)
        try:
            self.encoder.check_pairs(joined)
        except EncodeError as error:
            raise _placed(error, lambda row, _: ("candidates", row)) from None
        return Prepared(joined, unknown_items, joined.unknown, joined.missing)

    def score(self, prepared: Sequence[Prepared]) -> list[Floats]:
        """Probabilities of each request, in its order, from one forward over all; a non-finite score stays visible."""
        scores = self.engine.forward(Encoded.concat([one.encoded for one in prepared]))
        return np.split(scores, np.cumsum([one.rows for one in prepared])[:-1])

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

    def _items(self, candidates: Sequence[object]) -> tuple[Encoded, int]:
        """The item side's columns of each candidate, and how many of them the catalog lacks."""
        assert self.catalog is not None  # the caller asked for the ranking form of a version that has an item key
        sought = _Candidates(self.catalog, self.schema)
        for position, candidate in enumerate(candidates):
            sought.add(position, candidate)
        if not sought.fresh and not sought.faults:
            return self.catalog.encoded.take(np.array(sought.rows, np.int64)), 0
        try:
            fresh = self.encoder.encode_rows(sought.fresh, sides=("item",))
        except EncodeError as error:
            placed = _placed(error, lambda row, name: ("candidates", sought.places[row], name))
            raise EncodeError([*sought.faults, *placed.faults]) from None
        if sought.faults:
            raise EncodeError(sought.faults)
        return self._merged(sought, fresh), sought.unknown

    def _item_faults(self, candidates: Sequence[object]) -> list[Fault]:
        try:
            self._items(candidates)
        except EncodeError as error:
            return error.faults
        return []

    def _merged(self, sought: _Candidates, fresh: Encoded) -> Encoded:
        """Catalog rows and fresh rows, column by column: an override replaces its own columns alone."""
        assert self.catalog is not None  # as in _items
        known = [row for row in sought.rows if row >= 0]
        pool = Encoded.concat([self.catalog.encoded.take(np.array(known, np.int64)), fresh])
        base = np.empty(len(sought.rows), np.int64)
        new = np.full(len(sought.rows), -1, np.int64)
        new[sought.places] = np.arange(len(sought.fresh)) + len(known)
        is_known = np.array(sought.rows) >= 0
        base[is_known] = np.arange(len(known))
        base[~is_known] = new[~is_known]
        overridden = {name: base.copy() for name in sought.overrides}
        for name, places in sought.overrides.items():
            overridden[name][places] = new[places]
        # An override encodes whole rows; what it did not name was neither sent nor missing.
        overriding = int(is_known[sought.places].sum())
        missing = {
            name: count - overriding + len(sought.overrides.get(name, ())) for name, count in fresh.missing.items()
        }
        merged = self._by_column(pool, base, overridden)
        return dataclasses.replace(merged, unknown=fresh.unknown, missing=missing)

    def _by_column(self, pool: Encoded, base: Ints, overridden: Mapping[str, Ints]) -> Encoded:
        layout = self.encoder.layout
        numerics = [column.name for column in layout.numerics if column.side == "item"]
        ids = [column.feature for column in layout.ids if column.side == "item"]
        bags = [column.feature for column in layout.bags if column.side == "item"]
        merged = pool.take(base)
        for n, name in enumerate(numerics):
            if name in overridden:
                merged.numerics[:, n] = pool.numerics[overridden[name], n]
        for n, name in enumerate(ids):
            if name in overridden:
                merged.ids[:, n] = pool.ids[overridden[name], n]
        chosen = tuple(
            pool.bags[n].take(overridden[name]) if name in overridden else merged.bags[n] for n, name in enumerate(bags)
        )
        return Encoded(merged.numerics, merged.ids, chosen)


class _Candidates:
    """Sorts candidates into catalog rows and rows that must be encoded afresh."""

    def __init__(self, catalog: Catalog, schema: FeatureSchema) -> None:
        assert schema.item is not None  # a catalog has an item key
        self._catalog, self._key = catalog, schema.item
        self._names = {feature.name for feature in schema.of_side("item")}
        self.rows: list[int] = []  # the catalog row of each candidate, -1 where the catalog lacks it
        self.fresh: list[dict[str, object]] = []
        self.places: list[int] = []  # the candidate that each fresh row belongs to
        self.overrides: dict[str, list[int]] = {}  # feature name to the known candidates that override it
        self.unknown = 0
        self.faults: list[Fault] = []

    def add(self, position: int, candidate: object) -> None:
        given: Mapping[str, object] = {}
        key: object = candidate
        loc: tuple[str | int, ...] = ("candidates", position)
        if isinstance(candidate, dict):
            given, key = candidate, candidate.get(self._key)
            loc = ("candidates", position, self._key)
        try:
            text = category_text(key)
        except ValueFault:
            text = None
            key = None
        if key is None:
            msg = f"a candidate is an item id (a string or an integer) or an object with '{self._key}'"
            self.faults.append(Fault(loc, msg, "item_key"))
            self.rows.append(-1)
            return
        row = -1 if text is None else self._catalog.index.get(text, -1)
        self.rows.append(row)
        values = {name: value for name, value in given.items() if name in self._names and name != self._key}
        if row < 0:
            self.unknown += 1
            self._encode(position, {**values, self._key: key})
        elif values:
            self._encode(position, values)
            for name in values:
                self.overrides.setdefault(name, []).append(position)

    def _encode(self, position: int, row: dict[str, object]) -> None:
        self.fresh.append(row)
        self.places.append(position)


def _placed(error: EncodeError, place: Callable[[int, str], tuple[str | int, ...]]) -> EncodeError:
    """The same faults, moved from (row, feature) to their place in the body."""
    return EncodeError([Fault(place(*_row_and_name(fault)), fault.msg, fault.type) for fault in error.faults])


def _row_and_name(fault: Fault) -> tuple[int, str]:
    row, name = (*fault.loc, "")[:2]
    return int(row), str(name)
