"""The exam of a version: raw requests, and what the eager model says to rows joined without the serving code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from service.scoring.columns import bag_column, number_column, seconds_column, text_column
from service.scoring.encoded import Ints
from service.scoring.features import table_column
from service.scoring.schema import Feature, FeatureSchema

Row = dict[str, Any]

ROWS = 40  # validation rows asked one by one
USERS = 12  # ranking requests
CANDIDATES = 10
_NEVER_SEEN = "\N{SNOWMAN} never seen in training"


@dataclass(frozen=True, slots=True)
class Exam:
    """Requests as /predict takes them, and the joined rows that each stands for."""

    requests: list[Mapping[str, Any]]
    rows: list[list[Row]]


def raw_rows(schema: FeatureSchema, table: pa.Table, rows: Ints) -> list[Row]:
    """Rows of a table as a request would carry them: texts, numbers, lists, epoch seconds; missing values left out."""
    chosen = table.take(pa.array(rows))
    columns = {f.name: _values(f, chosen) for f in schema.features if f.name in table.column_names}
    return [
        {name: values[n] for name, values in columns.items() if values[n] not in (None, [])}
        for n in range(chosen.num_rows)
    ]


def make_exam(schema: FeatureSchema, table: pa.Table, rows: Ints, catalog: pa.Table | None, seed: int) -> Exam:
    """Some of `rows`, the same rows spoilt in every way a request may be, and rankings where there is a catalog."""
    random = np.random.default_rng(seed)
    known = raw_rows(schema, table, np.sort(random.permutation(rows)[:ROWS]))
    asked = [*known, *_spoilt(schema, known)]
    requests: list[Mapping[str, Any]] = [{"instances": [row]} for row in asked]
    joined = [[row] for row in asked]
    requests.append({"instances": known[:8]})
    joined.append(known[:8])
    if catalog is not None and schema.item is not None:
        for row in [*known[:USERS], {}]:
            ranking, rows_of_it = _ranking(schema, row, catalog, random)
            requests.append(ranking)
            joined.append(rows_of_it)
    return Exam(requests, joined)


def _values(feature: Feature, table: pa.Table) -> list[Any]:
    column = table_column(table, feature.name)
    if feature.kind == "numeric":
        return [None if np.isnan(value) else value for value in number_column(feature.name, column).tolist()]
    if feature.kind == "categorical":
        texts = text_column(feature.name, column)
        values = [None if code < 0 else texts.distinct[code] for code in texts.codes.tolist()]
        return [value if value is None else value == "true" for value in values] if texts.boolean else values
    if feature.kind == "multi":
        bags = bag_column(feature.name, column)
        named = [bags.distinct[code] == "true" if bags.boolean else bags.distinct[code] for code in bags.codes.tolist()]
        return [named[a:b] for a, b in zip(bags.offsets[:-1].tolist(), bags.offsets[1:].tolist(), strict=True)]
    seconds, missing = seconds_column(feature.name, column)
    return [None if gone else second for second, gone in zip(seconds.tolist(), missing.tolist(), strict=True)]


def _spoilt(schema: FeatureSchema, known: list[Row]) -> list[Row]:
    """Each feature missing, null and odd in turn, then all of them at once."""
    spoilt: list[Row] = [{}]
    everything: Row = {}
    for n, feature in enumerate(schema.features):
        base = known[n % len(known)]
        odd = _odd(feature, [row[feature.name] for row in known if feature.name in row])
        everything[feature.name] = odd
        spoilt += [{**base, feature.name: None}, {**base, feature.name: odd}]
    return [*spoilt, everything]


def _odd(feature: Feature, seen: list[Any]) -> Any:
    """A value that training never saw but a request may send."""
    if feature.kind == "numeric":
        low, high = (min(seen), max(seen)) if seen else (0.0, 1.0)
        return high + 10 * (high - low) + 1  # beyond the range: the scaler's business
    if feature.kind == "categorical":
        return _NEVER_SEEN
    if feature.kind == "multi":
        # In the place of two values: a list, or a cross of it, may be as long as is allowed already.
        return [*min(seen, key=len, default=[])[:-2], _NEVER_SEEN, _NEVER_SEEN]
    return "1999-12-31T23:30:00+09:00"


def _ranking(schema: FeatureSchema, row: Row, catalog: pa.Table, random: np.random.Generator) -> tuple[Row, list[Row]]:
    """One user with known items, one repeated, one overridden and one that the catalog lacks."""
    key = schema.item
    assert key is not None  # the caller checked
    user, context, item = (
        {f.name: row[f.name] for f in schema.of_side(s) if f.name in row} for s in ("user", "context", "item")
    )
    picked = random.integers(0, catalog.num_rows, CANDIDATES)
    sides = FeatureSchema(schema.of_side("item"))
    features = raw_rows(sides, catalog, picked) if sides.features else [{} for _ in picked]
    keys = text_column(key, catalog.column(key).take(pa.array(picked)))
    ids = [keys.distinct[code] for code in keys.codes.tolist()]
    override = {name: value for name, value in item.items() if name != key}
    candidates: list[Any] = [*ids, ids[0], {key: ids[1], **override}, _NEVER_SEEN, {key: _NEVER_SEEN, **override}]
    items = [*({**f, key: i} for f, i in zip(features, ids, strict=True)), {**features[0], key: ids[0]}]
    items += [{**features[1], **override, key: ids[1]}, {key: _NEVER_SEEN}, {**override, key: _NEVER_SEEN}]
    return {"user": user, "context": context, "candidates": candidates}, [{**user, **context, **one} for one in items]
