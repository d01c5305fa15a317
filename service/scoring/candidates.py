"""Candidates of ranking requests: which catalog rows they are, and which item rows must be encoded afresh."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from service.scoring.catalog import Catalog
from service.scoring.encoded import Encoded, Ints
from service.scoring.index import Keys
from service.scoring.keys import Odd, find_values
from service.scoring.layout import Layout
from service.scoring.schema import FeatureSchema
from service.scoring.values import EncodeError, Fault, ValueFault, category_text

Encode = Callable[[Sequence[Mapping[str, object]]], Encoded]
PLAIN = frozenset((str, int))


@dataclass(frozen=True, slots=True)
class Items:
    """P candidates: `rows` are rows of `catalog`, -1 where a row of `fresh` stands in, in the order of `places`.

    `strangers` are the candidates that the catalog lacks, ascending.
    """

    catalog: Catalog
    rows: Ints
    fresh: Encoded | None
    places: Ints
    strangers: Ints

    def encoded(self) -> Encoded:
        """The item columns of each candidate, in the request's order."""
        if self.fresh is None:
            return self.catalog.encoded.take(self.rows)
        known = self.rows[self.rows >= 0]
        pool = Encoded.concat([self.catalog.encoded.take(known), self.fresh])
        return pool.take(self.order(len(known)))

    def order(self, known: int) -> Ints:
        """Each candidate's row among the `known` catalog rows followed by the fresh ones."""
        order = np.empty(len(self.rows), np.int64)
        order[self.rows >= 0] = np.arange(known)
        order[self.places] = known + np.arange(len(self.places))
        return order

    @staticmethod
    def concat(items: Sequence[Items]) -> Items:
        """The candidates of several requests, of one catalog, as those of one."""
        if len(items) == 1:
            return items[0]
        starts = np.cumsum([0, *(len(one.rows) for one in items)])
        fresh = [one.fresh for one in items if one.fresh is not None]
        return Items(
            items[0].catalog,
            np.concatenate([one.rows for one in items]),
            Encoded.concat(fresh) if fresh else None,
            np.concatenate([one.places + start for one, start in zip(items, starts, strict=False)]),
            np.concatenate([one.strangers + start for one, start in zip(items, starts, strict=False)]),
        )


def find_keys(keys: Keys, catalog: Catalog) -> Items | None:
    """The items of unsalted keys (n,); None where the catalog lacks one."""
    column = catalog.items
    rows = column.index.find(keys, column.salt).astype(np.int64)
    if (rows < 0).any():
        return None
    nothing = np.zeros(0, np.int64)
    return Items(catalog, rows, None, nothing, nothing)


class CandidateFinder:
    """Looks candidates up for one version; `encode` gives the item columns of rows of item features."""

    def __init__(self, schema: FeatureSchema, layout: Layout, encode: Encode) -> None:
        assert schema.item is not None  # a catalog has an item key
        self._key, self._layout, self._encode = schema.item, layout, encode
        self._names = {feature.name for feature in schema.of_side("item")} - {schema.item}

    def find(self, candidates: Sequence[object], catalog: Catalog) -> Items:
        """Raises EncodeError whose faults are placed as in the body."""
        plain = PLAIN.issuperset(map(type, candidates))
        ids = candidates if plain else [one.get(self._key) if type(one) is dict else one for one in candidates]
        try:
            rows = find_values(catalog.items, ids).astype(np.int64)
        except Odd:
            faults = self._key_faults(candidates, ids, range(len(ids)))
            wrong = {fault.loc[1] for fault in faults}
            ids = ["" if place in wrong else one for place, one in enumerate(ids)]
            rows = find_values(catalog.items, ids).astype(np.int64)
            strangers = np.flatnonzero(rows < 0)
        else:
            strangers = np.flatnonzero(rows < 0)
            if plain and not strangers.size:
                return Items(catalog, rows, None, strangers, strangers)
            faults = self._key_faults(candidates, ids, strangers.tolist())
        return self._with_fresh(candidates, ids, catalog, rows, strangers, faults)

    def _with_fresh(
        self,
        candidates: Sequence[object],
        ids: Sequence[object],
        catalog: Catalog,
        rows: Ints,
        strangers: Ints,
        faults: list[Fault],
    ) -> Items:
        """Items of which some are encoded here: those that the catalog lacks, and those with features of their own."""
        fresh: dict[int, dict[str, object]] = {}
        overrides: dict[str, list[int]] = {}
        for place, one in enumerate(candidates):
            if type(one) is not dict and rows[place] >= 0:
                continue
            given = one if type(one) is dict else {}
            values = {name: value for name, value in given.items() if name in self._names}
            if rows[place] < 0:
                fresh[place] = {**values, self._key: ids[place]}
            elif values:
                fresh[place] = values
                for name in values:
                    overrides.setdefault(name, []).append(place)
        places = np.array(list(fresh), np.int64)
        if not fresh:
            return Items(catalog, rows, None, places, strangers)
        try:
            encoded = self._encode(list(fresh.values()))
        except EncodeError as error:
            found = ((int(places[int(fault.loc[0])]), fault) for fault in error.faults)
            placed = [Fault(("candidates", place, *fault.loc[1:]), fault.msg, fault.type) for place, fault in found]
            raise EncodeError([*faults, *placed]) from None
        if faults:
            raise EncodeError(faults)
        if overrides:
            encoded = self._overridden(encoded, rows[places], places, overrides, catalog)
        rows[places] = -1
        return Items(catalog, rows, encoded, places, strangers)

    def _key_faults(self, candidates: Sequence[object], ids: Sequence[object], places: Iterable[int]) -> list[Fault]:
        """What is wrong with the item keys of the candidates at `places`."""
        faults = []
        for place in places:
            try:
                category_text(ids[place])
                if ids[place] is not None:
                    continue
            except ValueFault:
                pass
            inside = (self._key,) if type(candidates[place]) is dict else ()
            msg = f"a candidate is an item id (a string or an integer) or an object with '{self._key}'"
            faults.append(Fault(("candidates", place, *inside), msg, "item_key"))
        return faults

    def _overridden(
        self, fresh: Encoded, own: Ints, places: Ints, overrides: Mapping[str, list[int]], catalog: Catalog
    ) -> Encoded:
        """Fresh rows of known items take from the catalog, column by column, what the request did not name."""
        known = own >= 0
        pool = Encoded.concat([fresh, catalog.encoded.take(own[known])])
        base = np.arange(fresh.rows)
        base[known] = fresh.rows + np.arange(int(known.sum()))
        row_of = {place: row for row, place in enumerate(places.tolist())}
        sources: dict[str, Ints] = {}
        for name, named in overrides.items():
            rows = [row_of[place] for place in named]
            sources[name] = base.copy()
            sources[name][rows] = rows
        merged = _by_column(pool, base, sources, self._layout)
        # An override encodes whole rows; what it did not name was neither sent nor missing.
        missing = {
            name: count - int(known.sum()) + len(overrides.get(name, ())) for name, count in fresh.missing.items()
        }
        return Encoded(merged.numerics, merged.ids, merged.bags, fresh.unknown, missing)


def _by_column(pool: Encoded, base: Ints, sources: Mapping[str, Ints], layout: Layout) -> Encoded:
    """Rows `base` of the pool, but for the columns of the features in `sources`, which come from those rows."""
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
