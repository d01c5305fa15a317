"""Training columns and request rows encode alike, for any schema and any values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.scoring.encoded import Encoded
from service.scoring.features import FeatureEncoder
from service.scoring.schema import FeatureSchema

texts = st.text(max_size=4)
# Rounded: a column of 0 and 1e-80 has so small a deviation that 1, scaled by it, is refused as not finite.
numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: round(value, 3)) | st.integers(-(10**6), 10**6)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "numeric": st.none() | numbers,
    "categorical": st.none() | texts,
    "multi": st.none() | st.lists(st.none() | texts, max_size=4),
    "datetime": st.none() | st.integers(-(10**9), 4 * 10**9),
}
ARROW = {
    "numeric": pa.float64(),
    "categorical": pa.string(),
    "multi": pa.list_(pa.string()),
    "datetime": pa.int64(),
}


@st.composite
def features(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(VALUES)))
    feature: dict[str, Any] = {"kind": kind, "side": draw(st.sampled_from(["user", "context", "item"]))}
    if kind == "numeric":
        feature["scaler"] = draw(st.sampled_from(["minmax", "standard", "none"]))
        if draw(st.booleans()):
            feature["bins"] = sorted(draw(st.sets(st.integers(-100, 100), min_size=1, max_size=4)))
    elif kind == "datetime":
        feature |= {"parts": ["hour", "weekday", "month"], "tz": draw(st.sampled_from(["UTC", "Asia/Kolkata"]))}
    else:
        feature |= {"min_count": draw(st.integers(1, 3)), "buckets": draw(st.sampled_from([0, 0, 7]))}
    return feature


@st.composite
def worlds(draw: st.DrawFn) -> tuple[FeatureSchema, list[dict[str, Any]], list[dict[str, Any]]]:
    chosen = [{"name": f"f{n}", **draw(features())} for n in range(draw(st.integers(1, 5)))]
    row = st.fixed_dictionaries({one["name"]: VALUES[one["kind"]] for one in chosen})
    rows = st.lists(row, min_size=1, max_size=6)
    return FeatureSchema.parse(chosen), draw(rows), draw(rows)


def as_table(schema: FeatureSchema, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({one.name: pa.array([row[one.name] for row in rows], ARROW[one.kind]) for one in schema.features})


def equal(one: Encoded, other: Encoded) -> bool:
    return (
        np.array_equal(one.numerics, other.numerics)
        and np.array_equal(one.ids, other.ids)
        and all(
            np.array_equal(a.values, b.values) and np.array_equal(a.offsets, b.offsets)
            for a, b in zip(one.bags, other.bags, strict=True)
        )
        and (one.unknown, one.missing) == (other.unknown, other.missing)
    )


@given(worlds())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_columns_and_request_rows_encode_to_the_same_tensors(
    world: tuple[FeatureSchema, list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    schema, seen, asked = world
    encoder = FeatureEncoder.fit(schema, as_table(schema, seen))
    for rows in (seen, asked):
        assert equal(encoder.encode_table(as_table(schema, rows)), encoder.encode_rows(rows))


@given(worlds())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_id_is_within_its_column_and_no_bag_is_empty(
    world: tuple[FeatureSchema, list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    schema, seen, asked = world
    encoder = FeatureEncoder.fit(schema, as_table(schema, seen))
    encoded = encoder.encode_rows(asked)
    for n, column in enumerate(encoder.layout.ids):
        assert (encoded.ids[:, n] >= 0).all()
        assert (encoded.ids[:, n] < column.size).all()
    for bag, column in zip(encoded.bags, encoder.layout.bags, strict=True):
        assert (np.diff(bag.offsets) > 0).all()
        assert ((bag.values >= 0) & (bag.values < column.size)).all()


@given(worlds())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_taking_and_joining_rows_again_changes_nothing(
    world: tuple[FeatureSchema, list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    schema, seen, asked = world
    encoder = FeatureEncoder.fit(schema, as_table(schema, seen))
    whole = encoder.encode_rows(asked)
    parts = [encoder.encode_rows([row]) for row in asked]
    assert equal(Encoded.concat(parts), whole)
    order = np.arange(len(asked))[::-1].copy()
    again = whole.take(order).take(order)
    assert np.array_equal(again.ids, whole.ids)
    assert [bag.values.tolist() for bag in again.bags] == [bag.values.tolist() for bag in whole.bags]
