"""A config's data: what is bad stops with its place, what is odd is counted, items are joined and kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from service.scoring.artifact import read_manifest
from tests.training.tiny_data import FEATURES, clicks, config, fit, items, visible, write_data
from training.config import Config
from training.data import Dataset, read_dataset
from training.errors import DataFault


def read(folder: Path, **changes: Any) -> Dataset:
    return read_dataset(folder, config(**changes), seed=1)


def replaced(name: str, values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    """The clicks with the first values of one column replaced."""
    rows = clicks()
    column = values + rows.column(name).to_pylist()[len(values) :]
    return rows.set_column(rows.column_names.index(name), name, pa.array(column, kind))


def fault(folder: Path, **changes: Any) -> str:
    with pytest.raises(DataFault) as caught:
        fit(config(**changes), folder, folder / "artifacts")
    assert visible(folder / "artifacts") == []
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "values", "kind", "says"),
    [
        ("clicked", [0, 1, 2], None, "row 3, column 'clicked': the label must be 0 or 1, found 2"),
        ("clicked", [0, None], None, "row 2, column 'clicked': the label must be 0 or 1, found nothing"),
        ("clicked", [0.0, 0.5], pa.float64(), "row 2, column 'clicked': the label must be 0 or 1, found 0.5"),
        ("age", [20.0, float("inf")], pa.float64(), "row 2, column 'age': the number is not finite"),
        ("age", [20.0, float("nan")], pa.float64(), "row 2, column 'age': the number is not finite"),
        ("timestamp", [1_700_000_000, None], None, "row 2, column 'timestamp': the time is missing"),
        ("timestamp", [1_700_000_000_000], None, "row 1, column 'timestamp'"),
    ],
)
def test_a_bad_value_stops_with_file_row_column_and_reason(
    tmp_path: Path, name: str, values: list[Any], kind: pa.DataType | None, says: str
) -> None:
    assert says in fault(write_data(tmp_path, replaced(name, values, kind)))


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("timestamp", "yesterday", "line 4, column 'timestamp'"),
        ("age", "old", "line 4, column 'age': 'old' is no number"),
        ("age", "inf", "line 4, column 'age': the number is not finite"),
        ("clicked", "yes", "line 4, column 'clicked': the label must be 0 or 1: 'yes' is no number"),
    ],
)
def test_a_bad_value_of_a_text_file_is_found_by_its_line(tmp_path: Path, column: str, value: str, says: str) -> None:
    write_data(tmp_path)
    rows = clicks().cast(pa.schema([(name, pa.string()) for name in clicks().column_names]))
    texts = rows.column(column).to_pylist()
    texts[2] = value
    rows = rows.set_column(rows.column_names.index(column), column, pa.array(texts))
    pa.csv.write_csv(rows, tmp_path / "events.csv")
    assert f"{tmp_path / 'events.csv'}, {says}" in fault(tmp_path, data={"format": "csv"})


def test_a_bad_value_of_the_item_table_is_placed_there(tmp_path: Path) -> None:
    write_data(tmp_path)
    prices = [1.0, float("inf"), *[2.0] * 28]
    pq.write_table(items().set_column(3, "price", pa.array(prices)), tmp_path / "items.parquet")
    assert "items.parquet, row 2, column 'price': the number is not finite" in fault(tmp_path)


def test_a_bad_value_in_the_last_part_is_placed_by_its_own_row(tmp_path: Path) -> None:
    ages = [20.0] * 590 + [float("inf")]
    assert "row 591, column 'age'" in fault(write_data(tmp_path, replaced("age", ages, pa.float64())))


def test_too_few_rows_for_the_split_publish_nothing(tmp_path: Path) -> None:
    assert "too few rows for the split" in fault(write_data(tmp_path, clicks(rows=4)))


def test_rows_without_a_unit_or_item_key_are_kept_as_missing_and_counted(tmp_path: Path) -> None:
    rows = replaced("item_id", ["", None, "", "i1"])
    users = pa.array([None, *rows.column("user_id").to_pylist()[1:]])
    data = read(write_data(tmp_path, rows.set_column(0, "user_id", users)))
    assert len(data.labels) == 600
    assert any("3 of 600 rows have no item_id" in note for note in data.notes)
    assert any("1 of 600 rows have no user_id" in note for note in data.notes)
    assert data.units is not None
    assert data.units[0] == -1
    assert data.table.column("price")[0].as_py() is None


def test_an_integer_key_meets_the_same_key_as_text(tmp_path: Path) -> None:
    write_data(tmp_path, replaced("item_id", [str(n % 30) for n in range(600)]))
    table = items().set_column(0, "item_id", pa.array(range(30)))
    pq.write_table(table, tmp_path / "items.parquet")
    joined = read(tmp_path).table
    assert joined.column("price").to_pylist()[:30] == table.column("price").to_pylist()


def test_items_are_joined_by_key_and_never_read_as_rows(tmp_path: Path) -> None:
    data = read(write_data(tmp_path))
    prices = dict(zip(items()["item_id"].to_pylist(), items()["price"].to_pylist(), strict=True))
    assert len(data.labels) == 600
    assert data.table.column("price").to_pylist() == [prices[key] for key in data.table.column("item_id").to_pylist()]


def test_rows_of_an_item_that_the_table_lacks_are_counted(tmp_path: Path) -> None:
    data = read(write_data(tmp_path, replaced("item_id", ["i999"])))
    assert any("1 rows name an item" in note for note in data.notes)


def test_an_item_that_stands_twice_in_the_table_is_refused(tmp_path: Path) -> None:
    write_data(tmp_path)
    pq.write_table(pa.concat_tables([items(), items().slice(3, 1)]), tmp_path / "items.parquet")
    with pytest.raises(DataFault, match=r"row 31: item 'i3' stands in the table twice, first at .* row 4"):
        read(tmp_path)


def test_the_catalog_keeps_columns_that_are_no_features(tmp_path: Path) -> None:
    catalog = read(write_data(tmp_path)).catalog(config(), np.arange(10))
    assert catalog is not None
    assert "title" in catalog.column_names


def with_item_columns(folder: Path) -> Config:
    rows = read(write_data(folder)).table
    (folder / "items.parquet").unlink()
    pq.write_table(rows, folder / "events.parquet")
    return config(data={"items": None})


def test_without_an_item_table_each_items_newest_training_row_is_its_catalog(tmp_path: Path) -> None:
    made = with_item_columns(tmp_path)
    rows = pq.read_table(tmp_path / "events.parquet")
    prices = np.arange(600.0)  # a price of its own for each row, in time order
    pq.write_table(
        rows.set_column(rows.column_names.index("price"), "price", pa.array(prices)), tmp_path / "events.parquet"
    )
    catalog = read_dataset(tmp_path, made, seed=1).catalog(made, np.arange(400))
    assert catalog is not None
    keys = rows.column("item_id").to_pylist()[:400]
    newest = {key: float(row) for row, key in enumerate(keys)}
    assert dict(zip(catalog["item_id"].to_pylist(), catalog["price"].to_pylist(), strict=True)) == newest


def test_a_version_without_an_item_table_is_published_too(tmp_path: Path) -> None:
    made = with_item_columns(tmp_path)
    assert fit(made, tmp_path, tmp_path / "artifacts").is_dir()


def test_a_split_by_files_reads_each_folder_as_its_part(tmp_path: Path) -> None:
    rows = clicks()
    for start, name in ((0, "train"), (400, "valid"), (500, "test")):
        (tmp_path / name).mkdir()
        pq.write_table(
            rows.slice(start, {"train": 400, "valid": 100, "test": 100}[name]), tmp_path / name / "a.parquet"
        )
    pq.write_table(items(), tmp_path / "items.parquet")
    made = config(split={"kind": "files"})
    data = read_dataset(tmp_path, made, seed=1)
    assert {name: len(part) for name, part in data.cut(made).parts(data.positions).items()} == {
        "train": 400,
        "valid": 100,
        "test": 100,
    }
    assert len(read_dataset(tmp_path, made, seed=1, part="test").labels) == 100


def test_constant_and_all_missing_columns_train_with_a_note_that_names_them(tmp_path: Path) -> None:
    rows = clicks().set_column(2, "age", pa.array([33] * 600))
    rows = rows.append_column("mood", pa.nulls(600, pa.string())).append_column("size", pa.nulls(600, pa.float64()))
    extra = [
        {"name": "mood", "kind": "categorical", "side": "user"},
        {"name": "size", "kind": "numeric", "side": "user"},
    ]
    version = fit(config(features=[*FEATURES, *extra]), write_data(tmp_path, rows), tmp_path / "artifacts")
    notes = " ".join(read_manifest(version)["notes"])
    for name in ("'age'", "'age.bin'", "'mood'", "'size'"):
        assert name in notes
    assert "'user_id'" not in notes


def test_a_changed_file_has_another_hash_in_the_manifest(tmp_path: Path) -> None:
    folder = write_data(tmp_path)
    before = read(folder).files
    write_data(folder, clicks(rows=601))
    after = read(folder).files
    assert before["items.parquet"] == after["items.parquet"]
    assert before["events.parquet"] != after["events.parquet"]
