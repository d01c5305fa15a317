"""The encoder's rules, on columns and on request values alike."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from service.scoring.features import FeatureEncoder
from service.scoring.schema import FeatureSchema
from service.scoring.values import DataError, EncodeError


def fit(table: dict[str, Any], *features: dict[str, Any]) -> FeatureEncoder:
    defaults = {"kind": "categorical", "side": "user"}
    schema = FeatureSchema.parse([{**defaults, **feature} for feature in features])
    return FeatureEncoder.fit(schema, pa.table(table))


def vocabulary(encoder: FeatureEncoder) -> list[str]:
    return sorted(encoder.fields[0].vocabulary.texts)  # type: ignore[attr-defined]  # a categorical field has one


def ids(encoder: FeatureEncoder, *values: object) -> list[int]:
    name = encoder.schema.features[0].name
    return encoder.encode_rows([{name: value} for value in values]).ids[:, 0].tolist()


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (["4101", "", "4102"], ["4101", "4102"]),
        (["NA", "DE", "None"], ["DE", "NA", "None"]),
        (["007", "7", "07"], ["007", "07", "7"]),
    ],
)
def test_en01_category_texts_are_kept_as_written(column: list[str], texts: list[str]) -> None:
    encoder = fit({"brand": column}, {"name": "brand"})
    assert vocabulary(encoder) == texts
    assert all(found >= 2 for found in ids(encoder, *texts))


def test_en01_an_integer_is_its_decimal_text_and_a_decimal_text_is_another_value() -> None:
    encoder = fit({"brand": ["4101", "", "4102"]}, {"name": "brand"})
    known, same, other, blank, null = ids(encoder, "4101", 4101, "4101.0", "", None)
    assert (known, same) == (known, known)
    assert other == 0
    assert blank == null == 1


def test_en03_a_single_row_encodes_as_it_does_in_the_whole_column() -> None:
    table = {"c": ["a", "b", "c", "a"], "x": [1.0, 5.0, 9.0, 2.0]}
    encoder = fit(table, {"name": "c"}, {"name": "x", "kind": "numeric"})
    whole = encoder.encode_table(pa.table(table))
    for row in range(4):
        alone = encoder.encode_rows([{name: column[row] for name, column in table.items()}])
        assert alone.ids.tolist() == whole.ids[row : row + 1].tolist()
        assert alone.numerics.tolist() == whole.numerics[row : row + 1].tolist()


def test_en04_all_unseen_values_share_the_unknown_id_and_are_counted() -> None:
    encoder = fit({"user": ["a", "b", "c"]}, {"name": "user"})
    encoded = encoder.encode_rows([{"user": "new-A"}, {"user": "new-B"}, {"user": "a"}])
    assert encoded.ids[:2, 0].tolist() == [0, 0]
    assert encoded.unknown == {"user": 2}
    assert 0 not in ids(encoder, "a", "b", "c")


def test_en04_rare_training_values_share_the_unknown_id() -> None:
    encoder = fit({"user": ["a", "a", "b"]}, {"name": "user", "min_count": 2})
    assert vocabulary(encoder) == ["a"]
    assert encoder.layout.ids[0].unknown_trained


def test_a_missing_kind_that_training_never_saw_is_the_unknown_id() -> None:
    encoder = fit({"user": ["a", "b"]}, {"name": "user"})
    encoded = encoder.encode_rows([{}])
    assert encoded.ids.tolist() == [[0]]
    assert encoded.missing == {"user": 1}
    assert encoded.unknown == {}


def test_en06_min_max_clips_to_the_training_range() -> None:
    encoder = fit({"x": [10.0, 20.0]}, {"name": "x", "kind": "numeric"})
    scaled = encoder.encode_rows([{"x": 30}, {"x": 0}, {"x": 15}, {"x": None}]).numerics[:, 0]
    assert scaled.tolist() == [1.0, 0.0, 0.5, 0.5]


def test_a_missing_number_takes_the_training_mean() -> None:
    encoder = fit({"x": [0.0, 1.0, 5.0, None]}, {"name": "x", "kind": "numeric", "scaler": "none"})
    assert encoder.encode_rows([{}]).numerics.tolist() == [[2.0]]


def test_log1p_min_max_clips_before_the_logarithm() -> None:
    encoder = fit({"x": [0.0, np.e - 1, np.e**2 - 1]}, {"name": "x", "kind": "numeric", "scaler": "log1p-minmax"})
    scaled = encoder.encode_rows([{"x": -5.0}, {"x": np.e - 1}, {"x": 1e9}]).numerics[:, 0]
    assert scaled == pytest.approx([0.0, 0.5, 1.0], abs=1e-7)


@pytest.mark.parametrize("scaler", ["minmax", "standard", "log1p-minmax"])
def test_own_arithmetic_equals_the_scaler(scaler: str) -> None:
    values = np.random.default_rng(0).gamma(2.0, 50.0, 1000)
    encoder = fit({"x": values}, {"name": "x", "kind": "numeric", "scaler": scaler})
    read = np.log1p(values) if scaler == "log1p-minmax" else values
    expected = encoder.scalers["x"].transform(read[:, None])[:, 0]  # type: ignore[attr-defined]  # scikit-learn's
    assert np.array_equal(encoder.encode_table(pa.table({"x": values})).numerics[:, 0], expected.astype(np.float32))


def test_en08_key_order_and_column_order_change_nothing() -> None:
    table = {"age": [0.0, 100.0], "price": [0.0, 1000.0], "c": ["u", "v"]}
    features = [{"name": "age", "kind": "numeric"}, {"name": "price", "kind": "numeric"}, {"name": "c"}]
    encoder = fit(table, *features)
    permuted = fit(dict(reversed(table.items())), *features)
    row = {"age": 50, "price": 500, "c": "u"}
    wanted = encoder.encode_rows([row])
    for keys in itertools.permutations(row):
        for one in (encoder, permuted):
            found = one.encode_rows([{key: row[key] for key in keys}])
            assert found.numerics.tolist() == wanted.numerics.tolist() == [[0.5, 0.5]]
            assert found.ids.tolist() == wanted.ids.tolist()


def test_en09_neighbouring_times_and_ids_stay_apart() -> None:
    table = {"at": [1_700_000_000, 1_700_086_400], "id": [16_777_216, 16_777_217]}
    encoder = fit(table, {"name": "at", "kind": "numeric"}, {"name": "id"})
    encoded = encoder.encode_rows([{"at": 1_700_000_000, "id": 16_777_216}, {"at": 1_700_000_060, "id": 16_777_217}])
    assert encoded.numerics[:, 0] == pytest.approx([0.0, 0.00069444], abs=1e-7)
    assert encoded.ids[0, 0] != encoded.ids[1, 0]


def test_integers_of_any_size_stay_exact() -> None:
    huge = 2**80 + 1
    encoder = fit({"id": [str(huge), str(huge + 1)]}, {"name": "id"})
    assert sorted(ids(encoder, huge, huge + 1)) == [2, 3]


@pytest.fixture(params=["UTC", "Asia/Tokyo", "America/New_York"])
def server_zone(request: pytest.FixtureRequest) -> Iterator[str]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


@pytest.mark.usefixtures("server_zone")
@pytest.mark.parametrize(("zone", "hour"), [("UTC", 23), ("Asia/Tokyo", 8)])
def test_en10_one_instant_has_one_hour_on_every_path(zone: str, hour: int) -> None:
    instant = datetime(2024, 1, 2, 8, 30, tzinfo=ZoneInfo("Asia/Tokyo"))
    parquet = pa.table({"at": pa.array([instant], pa.timestamp("us", "Asia/Tokyo"))})
    csv = pa.table({"at": ["2024-01-02T08:30:00+09:00"]})
    feature = {"name": "at", "kind": "datetime", "parts": ["hour"], "tz": zone}
    encoder = fit({"at": ["2024-01-01T00:00:00Z"]}, feature)
    for found in (
        encoder.encode_table(parquet),
        encoder.encode_table(csv),
        encoder.encode_rows([{"at": "2024-01-01T23:30:00Z"}]),
        encoder.encode_rows([{"at": "2024-01-01T23:30:00"}]),
        encoder.encode_rows([{"at": int(instant.timestamp())}]),
    ):
        assert found.ids.tolist() == [[hour + 2]]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "Asia/Kolkata", "America/St_Johns", "Australia/Lord_Howe"])
def test_time_parts_are_those_of_the_standard_library(zone: str) -> None:
    seconds = np.random.default_rng(1).integers(-2_500_000_000, 4_000_000_000, 500)
    feature = {"name": "at", "kind": "datetime", "parts": ["hour", "weekday", "month"], "tz": zone}
    encoder = fit({"at": [0]}, feature)
    found = encoder.encode_table(pa.table({"at": seconds})).ids - 2
    moments = [datetime.fromtimestamp(int(second), ZoneInfo(zone)) for second in seconds]
    assert found.tolist() == [[moment.hour, moment.weekday(), moment.month - 1] for moment in moments]


def test_a_time_in_milliseconds_is_named_as_such() -> None:
    encoder = fit({"at": [0]}, {"name": "at", "kind": "datetime", "parts": ["hour"]})
    with pytest.raises(EncodeError, match="milliseconds"):
        encoder.encode_rows([{"at": 1_700_000_000_000}])


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("x", "3.5", "number_type"),
        ("x", False, "number_type"),
        ("x", float("nan"), "finite_number"),
        ("x", 10**400, "finite_number"),
        ("plain", 1e39, "finite_number"),
        ("c", True, "category_type"),
        ("c", 1.0, "category_type"),
        ("c", ["a"], "category_type"),
        ("m", "abc", "list_type"),
        ("m", [1.5], "category_type"),
        ("m", ["a"] * 1025, "too_long"),
        ("at", True, "datetime_type"),
        ("at", "yesterday", "datetime_parsing"),
        ("at", "20240131", "datetime_parsing"),
    ],
)
def test_a_value_of_the_wrong_type_is_a_fault_with_its_place(name: str, value: object, fault: str) -> None:
    table = {"x": [1.0], "plain": [1.0], "c": ["a"], "m": [["a"]], "at": [0]}
    encoder = fit(
        table,
        {"name": "x", "kind": "numeric"},
        {"name": "plain", "kind": "numeric", "scaler": "none"},
        {"name": "c"},
        {"name": "m", "kind": "multi"},
        {"name": "at", "kind": "datetime", "parts": ["hour"]},
    )
    with pytest.raises(EncodeError) as caught:
        encoder.encode_rows([{}, {name: value}])
    assert [(found.loc, found.type) for found in caught.value.faults] == [((1, name), fault)]


def test_a_boolean_is_a_category_only_where_training_saw_booleans() -> None:
    encoder = fit({"c": [True, False]}, {"name": "c"})
    assert sorted(ids(encoder, True, False)) == [2, 3]


def test_a_bag_is_a_set() -> None:
    encoder = fit({"m": [["a", "b"], ["c"]]}, {"name": "m", "kind": "multi"})
    first = encoder.encode_rows([{"m": ["b", "a", "b", "", None]}]).bags[0]
    second = encoder.encode_rows([{"m": ["a", "b"]}]).bags[0]
    assert first.values.tolist() == second.values.tolist()


def test_text_cells_and_lists_give_the_same_bags() -> None:
    encoder = fit({"m": [["a", "b"], ["c"], None]}, {"name": "m", "kind": "multi"})
    texts = encoder.encode_table(pa.table({"m": ["b|a", "c|c", "", "z"]})).bags[0]
    lists = encoder.encode_rows([{"m": ["b", "a"]}, {"m": ["c"]}, {"m": []}, {"m": ["z"]}]).bags[0]
    assert texts.values.tolist() == lists.values.tolist()
    assert texts.offsets.tolist() == lists.offsets.tolist()


def test_equal_text_in_two_columns_never_meets() -> None:
    encoder = fit({"a": ["x", "y"], "b": ["y", "x"]}, {"name": "a", "buckets": 50}, {"name": "b"})
    assert [column.name for column in encoder.layout.ids] == ["a", "b"]
    assert encoder.encode_rows([{"a": "x", "b": "x"}]).ids.shape == (1, 2)


def test_the_hash_is_the_same_on_every_platform() -> None:
    encoder = fit({"a": ["x"]}, {"name": "a", "buckets": 1000})
    # Worked out with `printf TEXT | b2sum -l 64`, read big-endian.
    assert ids(encoder, "c2", "用户1") == [2 + 0x054F7D0D9E505C5D % 1000, 2 + 0x78DA2963359A96D3 % 1000]


def test_the_vocabulary_depends_on_counts_not_on_order() -> None:
    values = ["a"] * 3 + ["b"] * 5 + ["c"] * 3
    shuffled = list(np.random.default_rng(3).permutation(values))
    assert ids(fit({"c": values}, {"name": "c"}), "b", "a", "c") == [2, 3, 4]
    assert ids(fit({"c": shuffled}, {"name": "c"}), "b", "a", "c") == [2, 3, 4]


@pytest.mark.parametrize(
    ("column", "feature", "said"),
    [
        ([1.5, 2.0], {"kind": "categorical"}, "not a fraction"),
        (["1", "x"], {"kind": "numeric"}, "'x' is no number"),
        ([1.0, float("inf")], {"kind": "numeric"}, "row 2: the number is not finite"),
        ([True], {"kind": "numeric"}, "a number is needed"),
        ([-1.0], {"kind": "numeric", "scaler": "log1p-minmax"}, "above -1"),
        (["a"], {"kind": "datetime", "parts": ["hour"]}, "no ISO 8601"),
        ([1], {"kind": "multi"}, "lists of categories"),
    ],
)
def test_a_bad_column_is_named_with_the_reason(column: list[Any], feature: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        fit({"x": column}, {"name": "x", **feature})
    assert caught.value.column == "x"


def test_integers_that_missing_values_made_floats_are_integers_again() -> None:
    encoder = fit({"c": pa.array([4101.0, None, 4102.0])}, {"name": "c"})
    assert vocabulary(encoder) == ["4101", "4102"]


def test_a_cross_of_two_long_lists_is_refused() -> None:
    names = [str(n) for n in range(100)]
    features = [{"name": name, "kind": "multi", "side": "item"} for name in ("a", "b")]
    schema = FeatureSchema.parse(features, [{"of": ["a", "b"]}])
    encoder = FeatureEncoder.fit(schema, pa.table({"a": [[n] for n in names], "b": [[n] for n in names]}))
    with pytest.raises(EncodeError, match="4096 pairs"):
        encoder.encode_rows([{"a": names, "b": names}])


def test_unknown_values_share_one_place_in_a_bag() -> None:
    encoder = fit({"m": [["a", "b"]]}, {"name": "m", "kind": "multi"})
    encoded = encoder.encode_rows([{"m": [f"new{n}" for n in range(500)]}])
    assert encoded.bags[0].values.tolist() == [0]
    assert encoded.unknown == {"m": 500}
