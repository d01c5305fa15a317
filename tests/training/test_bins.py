"""Edges of bins found on training rows: shares for quantiles, changes of the rate for the label."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from service.scoring.columns import Doubles
from service.scoring.features import FeatureEncoder
from service.scoring.schema import FeatureSchema
from service.scoring.values import DataError
from training.bins import numbers_of, quantile_edges, target_edges, with_edges


def schema(bins: str) -> FeatureSchema:
    return FeatureSchema.parse([{"name": "x", "kind": "numeric", "side": "user", "bins": bins}])


def counts(values: Doubles, edges: tuple[float, ...]) -> list[int]:
    return np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1).tolist()


def test_quantile_bins_hold_equal_shares() -> None:
    values = np.random.default_rng(0).permutation(1000.0 * np.arange(400))
    assert counts(values, quantile_edges(values, 4)) == [100] * 4


def test_no_quantile_bin_is_empty_where_values_tie() -> None:
    values = np.array([0.0] * 90 + [1.0] * 5 + [2.0] * 5)
    edges = quantile_edges(values, 32)
    assert edges == (1.0, 2.0)
    assert min(counts(values, edges)) > 0


def test_target_bins_end_where_the_rate_changes() -> None:
    values = np.arange(300.0)
    labels = ((values >= 100) & (values < 200)).astype(np.float32)
    low, high = target_edges(values, labels, 3)
    assert 99 < low <= 100
    assert 199 < high <= 200


@pytest.mark.parametrize("rule", ["quantile:8", "target:8"])
def test_a_column_of_one_value_or_none_has_one_edge(rule: str) -> None:
    for column in ([5.0] * 50, [None] * 50):
        table = pa.table({"x": pa.array(column, pa.float64())})
        found = with_edges(schema(rule), partial(numbers_of, table), np.arange(50, dtype=np.float32) % 2)
        assert len(found.features[0].bins) == 1
        assert FeatureEncoder.fit(found, table).layout.ids[0].size == 4


def test_a_versions_schema_holds_edges_and_no_rule() -> None:
    table = pa.table({"x": np.arange(100.0)})
    found = with_edges(schema("quantile:4"), partial(numbers_of, table), np.zeros(100, np.float32))
    assert found.to_dict()["features"][0]["bins"] == [25.0, 50.0, 75.0]
    with pytest.raises(ValueError, match="still a rule"):
        FeatureEncoder.fit(schema("quantile:4"), table)


def test_a_column_of_no_numbers_is_named() -> None:
    with pytest.raises(DataError, match="'old' is no number"):
        numbers_of(pa.table({"x": ["1", "old"]}), "x")
