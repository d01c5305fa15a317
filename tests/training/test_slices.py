"""Slices: new users and items, values of named columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.training.tiny_data import config, write_data
from training.config import ConfigError
from training.data import read_dataset
from training.slices import slices


def test_slices_of_a_column_cover_the_part_and_new_users_are_those_not_trained_on(tmp_path: Path) -> None:
    made = config(report={"slices": ["age", "genres", "timestamp", "price"]})
    data = read_dataset(write_data(tmp_path), made, seed=1)
    train, rows = np.arange(20), np.arange(20, 600)
    found = slices(data, made, train, rows, np.full(len(rows), 0.5, np.float32))
    by = {(one["column"], one["value"]): one["rows"] for one in found}
    known = set(data.units[train].tolist())
    assert by["user", "new"] == sum(unit not in known for unit in data.units[rows].tolist())
    for column in ("user", "item", "age", "timestamp", "price"):
        assert sum(count for (name, _), count in by.items() if name == column) == len(rows)
    assert {value for name, value in by if name == "age"} == {"below 20", "20 to 30", "30 to 40", "40 and more"}
    assert {value for name, value in by if name == "genres"} == {f"g{n}" for n in range(5)}


def test_a_slice_of_no_feature_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"slices: 'agee' is no feature.*age"):
        config(report={"slices": ["agee"]})
