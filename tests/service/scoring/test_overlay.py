"""Item tables laid over each other, and what differs between two."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from service.scoring.overlay import Difference, difference, lay_over
from service.scoring.schema import FeatureSchema
from service.scoring.values import DataError

SCHEMA = FeatureSchema.parse(
    [
        {"name": "price", "kind": "numeric", "side": "item"},
        {"name": "brand", "kind": "categorical", "side": "item"},
        {"name": "genres", "kind": "multi", "side": "item"},
        {"name": "released", "kind": "datetime", "side": "item", "parts": ["month"]},
    ],
    [],
    unit=None,
    item="id",
)


def laid(base: dict[str, Any], items: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lay_over(pa.table(base), pa.table(items), SCHEMA).to_pylist()
    return rows


def differs(old: dict[str, Any], new: dict[str, Any]) -> Difference:
    return difference(pa.table(old), pa.table(new), SCHEMA)


def test_a_known_item_is_replaced_in_its_place_and_a_new_one_comes_last():
    found = laid({"id": ["a", "b", "c"], "price": [1.0, 2.0, 3.0]}, {"id": ["new", "b"], "price": [9.0, 8.0]})
    assert [(row["id"], row["price"]) for row in found] == [("a", 1.0), ("b", 8.0), ("c", 3.0), ("new", 9.0)]


def test_a_null_replaces_a_value():
    found = laid({"id": ["a"], "price": [1.0]}, {"id": ["a"], "price": pa.array([None], pa.float64())})
    assert found == [{"id": "a", "price": None}]


def test_a_column_that_the_items_lack_keeps_the_old_values_and_is_missing_in_new_items():
    found = laid({"id": ["a"], "price": [1.0], "brand": ["x"]}, {"id": ["a", "b"], "price": [2.0, 3.0]})
    assert found == [{"id": "a", "price": 2.0, "brand": "x"}, {"id": "b", "price": 3.0, "brand": None}]


def test_a_new_column_is_missing_in_the_items_that_are_not_named():
    found = laid({"id": ["a", "b"]}, {"id": ["b"], "title": ["B"]})
    assert found == [{"id": "a", "title": None}, {"id": "b", "title": "B"}]


def test_an_integer_and_its_text_are_one_item():
    found = laid({"id": [42, 43], "price": [1.0, 2.0]}, {"id": ["42"], "price": [5.0]})
    assert found == [{"id": "42", "price": 5.0}, {"id": "43", "price": 2.0}]


def test_the_item_key_stays_a_text_though_a_number_reads_it_as_a_feature():
    schema = FeatureSchema.parse([{"name": "id", "kind": "numeric", "side": "item"}], [], unit=None, item="id")
    found = lay_over(pa.table({"id": [2**60 + 1]}), pa.table({"id": ["007"]}), schema)
    assert found.column("id").to_pylist() == [str(2**60 + 1), "007"]


@pytest.mark.parametrize(
    ("name", "old", "new", "both"),
    [
        ("price", pa.array([1]), pa.array([2.5]), [1.0, 2.5]),
        ("price", pa.array(["1.5"]), pa.array([2]), [1.5, 2.0]),
        ("brand", pa.array([7]), pa.array(["x"]), ["7", "x"]),
        ("brand", pa.array(["x"]).dictionary_encode(), pa.array(["y"]), ["x", "y"]),
        ("brand", pa.nulls(1), pa.array(["y"]), [None, "y"]),
        ("genres", pa.array([["a", "b"]]), pa.array(["c|d"]), [["a", "b"], ["c", "d"]]),
        ("released", pa.array([10]), pa.array([datetime(1970, 1, 2, tzinfo=UTC)]), [10, 86400]),
        ("title", pa.array(["t"]), pa.array(["u"], pa.large_string()), ["t", "u"]),
    ],
)
def test_columns_of_two_types_become_what_the_encoder_reads_in_both(
    name: str, old: pa.Array, new: pa.Array, both: list[Any]
):
    found = lay_over(pa.table({"id": ["a"], name: old}), pa.table({"id": ["b"], name: new}), SCHEMA)
    assert found.column(name).to_pylist() == both


def test_a_column_for_display_of_another_type_is_refused_by_name():
    with pytest.raises(DataError, match=r"column 'title': it holds int64 here and string in the catalog"):
        laid({"id": ["a"], "title": ["t"]}, {"id": ["a"], "title": [3]})


def test_what_differs_is_counted_item_by_item():
    old = {"id": ["a", "b", "c"], "price": [1.0, 2.0, None], "genres": [["x"], ["x"], None]}
    new = {"id": ["c", "b", "d"], "price": [None, 2.0, 4.0], "genres": [None, ["y"], ["z"]]}
    assert differs(old, new) == Difference(added=1, changed=1, removed=1)


def test_the_same_values_in_another_order_and_type_do_not_differ():
    assert differs({"id": [1, 2], "price": [1, 2]}, {"id": ["2", "1"], "price": [2.0, 1.0]}) == Difference(0, 0, 0)


def test_a_column_that_went_changes_the_items_that_had_a_value_in_it():
    assert differs({"id": ["a", "b"], "brand": ["x", None]}, {"id": ["a", "b"]}) == Difference(0, 1, 0)


def test_times_of_nanoseconds_are_compared():
    times = pa.array([1_700_000_000_000_000_001], pa.timestamp("ns"))
    assert differs({"id": ["a"], "released": times}, {"id": ["a"], "released": times}) == Difference(0, 0, 0)
