"""Mistakes of users, through the command: one plain line that names the place, exit code 1, nothing published."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.training.test_command import toml, words
from tests.training.test_reading import csv_file, fault
from tests.training.tiny_data import CROSSES, FEATURES, clicks, config, fit, items, visible, write_data
from training import train
from training.__main__ import main
from training.config import Config, ConfigError, read_config
from training.errors import DataFault, FitError
from training.reading import read_rows
from training.split import cut


def refused(made: Config, folder: Path) -> str:
    """The reason of a fit that stops before an epoch and publishes nothing."""
    with pytest.raises(DataFault) as caught:
        fit(made, folder, folder / "artifacts")
    assert not (folder / "artifacts" / ".runs").exists()
    assert visible(folder / "artifacts") == []
    return str(caught.value)


def without_table(key: list[str | None]) -> tuple[Config, pa.Table]:
    rows = clicks().set_column(1, "item_id", pa.array(key, pa.string()))
    features = [feature for feature in FEATURES if feature["name"] not in ("genres", "price")]
    return config(data={"items": None}, features=features, crosses=[]), rows


def test_item_keys_that_are_all_blank_are_refused_before_training(tmp_path: Path) -> None:
    made, rows = without_table([None] * 600)
    pq.write_table(rows, tmp_path / "events.parquet")
    assert "'item_id', the item key, is blank" in refused(made, tmp_path)


@pytest.mark.parametrize("table", [items(0), items(2).set_column(0, "item_id", pa.nulls(2, pa.string()))])
def test_an_item_table_that_names_no_item_is_refused(tmp_path: Path, table: pa.Table) -> None:
    write_data(tmp_path)
    pq.write_table(table, tmp_path / "items.parquet")
    assert refused(config(), tmp_path) == f"{tmp_path / 'items.parquet'}: column 'item_id', the item key, names no item"


def test_item_keys_that_are_blank_beside_an_item_table_train(tmp_path: Path) -> None:
    rows = clicks().set_column(1, "item_id", pa.nulls(600, pa.string()))
    assert fit(config(), write_data(tmp_path, rows), tmp_path / "artifacts").is_dir()


@pytest.mark.parametrize("length", [1023, 1024])
def test_lists_as_long_as_is_allowed_pass_the_exam(tmp_path: Path, length: int) -> None:
    write_data(tmp_path)
    lists = [[f"g{n}" for n in range(length)]] * 30
    table = items()
    pq.write_table(table.set_column(2, "genres", pa.array(lists)), tmp_path / "items.parquet")
    made = config(crosses=CROSSES[:1], train={"epochs": 1})
    assert fit(made, tmp_path, tmp_path / "artifacts").is_dir()


@pytest.mark.parametrize("empty", ["train", "valid", "test"])
def test_a_split_by_files_with_an_empty_part_names_its_folder(empty: str) -> None:
    positions = [number for number, name in enumerate(("train", "valid", "test")) if name != empty]
    made = config(split={"kind": "files"})
    with pytest.raises(DataFault, match=f"{empty}/ hold no rows"):
        cut(made.split, np.array(positions, np.float64), 1)


def test_damaged_deflate_data_names_the_file(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % (n, n * n) for n in range(20_000))))
    packed[200:260] = b"\xff" * 60
    path = csv_file(tmp_path, bytes(packed), "rows.csv.gz")
    assert fault(path).startswith(f"{path}: cannot be read: ")


def test_string_views_are_read_as_texts(tmp_path: Path) -> None:
    views = pa.table(
        {"a": pa.array(["x", None], pa.string_view()), "b": pa.array([["y"], []], pa.list_(pa.string_view()))}
    )
    pq.write_table(views, tmp_path / "rows.parquet")
    read = read_rows([tmp_path / "rows.parquet"], "parquet", None).table
    assert read.schema.types == [pa.string(), pa.list_(pa.string())]


def test_string_views_of_events_and_items_train(tmp_path: Path) -> None:
    rows, table = clicks(), items()
    write_data(tmp_path, rows.set_column(1, "item_id", rows.column("item_id").cast(pa.string_view())))
    pq.write_table(
        table.set_column(1, "title", table.column("title").cast(pa.string_view())), tmp_path / "items.parquet"
    )
    assert fit(config(train={"epochs": 1}), tmp_path, tmp_path / "artifacts").is_dir()


LONG = "x" * 200_000


def test_a_bad_value_after_a_long_field_is_placed_at_its_line(tmp_path: Path) -> None:
    path = csv_file(tmp_path, f"a,b\n{LONG},1\ny,bad\n")
    assert read_rows([path], "csv", None).place(1) == f"{path}, line 3"


def test_a_ragged_line_after_a_long_field_is_placed_at_its_line(tmp_path: Path) -> None:
    path = csv_file(tmp_path, f"a,b\n{LONG},1\ny\n")
    assert fault(path) == f"{path}, line 3: expected 2 fields, found 1"


def test_divergence_stops_with_its_reason(tmp_path: Path) -> None:
    made = config(train={"deep_lr": 1e30, "epochs": 1})
    with pytest.raises(FitError, match="not finite"):
        fit(made, write_data(tmp_path / "data"), tmp_path / "artifacts")
    assert visible(tmp_path / "artifacts") == []


NUMBER = "1" + "0" * 400


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"train": {"seed": 99999999999999999999}}, "[train] seed must be at most"),
        ({"train": {"batch_size": 99999999999999999999}}, "[train] batch_size must be at most"),
        ({"train": {"deep_lr": int(NUMBER)}}, "[train] deep_lr is too large"),
        ({"model": {"hidden": [99999999999]}}, "[model] hidden: a width must be at most"),
        (
            {"features": [{**FEATURES[0], "dim": 2_000_000_000}], "crosses": [], "data": {"item": None, "items": None}},
            "'user_id': dim must be at most",
        ),
    ],
)
def test_a_size_beyond_reason_names_its_key(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(**changes)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 5_000, "[[features]]\nname = 'a'\nkind = 'numeric'\nside = 'user'\nbins = [" + NUMBER + "]"]
)
def test_a_config_that_no_parser_can_hold_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"c\.toml: "):
        read_config(tmp_path / "c.toml")


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_too_little_memory_is_one_plain_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(train, "main", fail)
    toml(tmp_path)
    assert main(words(tmp_path)) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: not enough memory")


def test_a_programming_error_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(train, "main", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main(words(tmp_path))
