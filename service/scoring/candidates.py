"""The candidates of a ranking request: which catalog rows they are, and which item rows must be encoded afresh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from service.scoring.catalog import Catalog
from service.scoring.encoded import Encoded, Ints
from service.scoring.features import FeatureEncoder
from service.scoring.schema import FeatureSchema
from service.scoring.values import EncodeError, Fault, ValueFault, category_text


@dataclass(frozen=True, slots=True)
class Items:
    """B candidates: `rows` are catalog rows, -1 where a row of `fresh` stands in; `places` are the candidates of those.

    `unknown_items` counts candidates that the catalog lacks.
    """

    rows: Ints
    fresh: Encoded | None
    places: Ints
    unknown_items: int

    def encoded(self, catalog: Catalog) -> Encoded:
        """The item columns of each candidate, in the request's order."""
        if self.fresh is None:
            return catalog.encoded.take(self.rows)
        known = self.rows[self.rows >= 0]
        pool = Encoded.concat([catalog.encoded.take(known), self.fresh])
        return pool.take(self.order(len(known)))

    def order(self, known: int) -> Ints:
        """Each candidate's row among the `known` catalog rows followed by the fresh ones."""
        order = np.empty(len(self.rows), np.int64)
        order[self.rows >= 0] = np.arange(known)
        order[self.places] = known + np.arange(len(self.places))
        return order


def find_items(candidates: Sequence[object], catalog: Catalog, encoder: FeatureEncoder) -> Items:
    """Look candidates up; raises EncodeError whose faults are placed as in the body."""
    sought = _Candidates(catalog, encoder.schema)
    for position, candidate in enumerate(candidates):
        sought.add(position, candidate)
    rows, places = np.array(sought.rows, np.int64), np.array(sought.places, np.int64)
    if not sought.fresh and not sought.faults:
        return Items(rows, None, places, 0)
    try:
        fresh = encoder.encode_rows(sought.fresh, sides=("item",))
    except EncodeError as error:
        found = ((sought.places[int(fault.loc[0])], fault) for fault in error.faults)
        faults = [Fault(("candidates", place, *fault.loc[1:]), fault.msg, fault.type) for place, fault in found]
        raise EncodeError([*sought.faults, *faults]) from None
    if sought.faults:
        raise EncodeError(sought.faults)
    if sought.overrides:
        fresh = _overridden(sought, fresh, catalog, encoder)
    rows[places] = -1
    return Items(rows, fresh, places, sought.unknown)


def joined_items(items: Sequence[Items]) -> Items:
    """The candidates of several requests as those of one."""
    if len(items) == 1:
        return items[0]
    starts = np.cumsum([0, *(len(one.rows) for one in items)])
    fresh = [one.fresh for one in items if one.fresh is not None]
    return Items(
        np.concatenate([one.rows for one in items]),
        Encoded.concat(fresh) if fresh else None,
        np.concatenate([one.places + start for one, start in zip(items, starts, strict=False)]),
        sum(one.unknown_items for one in items),
    )


def _overridden(sought: _Candidates, fresh: Encoded, catalog: Catalog, encoder: FeatureEncoder) -> Encoded:
    """Fresh rows of known items take from the catalog, column by column, what the request did not name."""
    own = np.array([sought.rows[place] for place in sought.places], np.int64)
    known = own >= 0
    pool = Encoded.concat([fresh, catalog.encoded.take(own[known])])
    base = np.arange(fresh.rows)
    base[known] = fresh.rows + np.arange(int(known.sum()))
    row_of = {place: row for row, place in enumerate(sought.places)}
    sources: dict[str, Ints] = {}
    for name, named in sought.overrides.items():
        rows = [row_of[place] for place in named]
        sources[name] = base.copy()
        sources[name][rows] = rows
    merged = _by_column(pool, base, sources, encoder)
    # An override encodes whole rows; what it did not name was neither sent nor missing.
    missing = {
        name: count - int(known.sum()) + len(sought.overrides.get(name, ())) for name, count in fresh.missing.items()
    }
    return Encoded(merged.numerics, merged.ids, merged.bags, fresh.unknown, missing)


def _by_column(pool: Encoded, base: Ints, sources: Mapping[str, Ints], encoder: FeatureEncoder) -> Encoded:
    """Rows `base` of the pool, but for the columns of the features in `sources`, which come from those rows."""
    layout = encoder.layout
    merged = pool.take(base)
    for n, numeric in enumerate([column for column in layout.numerics if column.side == "item"]):
        if numeric.name in sources:
            merged.numerics[:, n] = pool.numerics[sources[numeric.name], n]
    for n, column in enumerate([column for column in layout.ids if column.side == "item"]):
        if column.feature in sources:
            merged.ids[:, n] = pool.ids[sources[column.feature], n]
    bags = [column.feature for column in layout.bags if column.side == "item"]
    chosen = (pool.bags[n].take(sources[name]) if name in sources else merged.bags[n] for n, name in enumerate(bags))
    return Encoded(merged.numerics, merged.ids, tuple(chosen))


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
