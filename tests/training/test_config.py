"""The config: what is wrong is refused with the nearest known name; what is right round-trips."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import training
from tests.training.tiny_data import FEATURES, config, tables
from training.config import Config, ConfigError, read_config

SHARED_EXAMPLE = """
[data]
format = "csv"
label = "clicked"
unit = "user_id"
timestamp = "ts"
[[features]]
name = "age"
kind = "numeric"
side = "user"
bins = [18, 25]
[[crosses]]
of = ["age.bin", "gender"]
buckets = 100
[[features]]
name = "gender"
kind = "categorical"
side = "user"
"""


def refused(changed: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        Config.from_dict(changed)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_is_read_and_absent_keys_take_their_defaults(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(SHARED_EXAMPLE)
    read = read_config(tmp_path / "c.toml")
    assert (read.data.format, read.split.kind, read.model.hidden, read.train.patience) == (
        "csv",
        "time",
        (256, 128, 64),
        2,
    )


def test_a_byte_order_mark_before_the_config_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(SHARED_EXAMPLE, encoding="utf-8-sig")
    assert read_config(tmp_path / "c.toml").data.label == "clicked"


def test_a_config_is_rebuilt_from_what_the_manifest_stores() -> None:
    made = config()
    assert Config.from_dict(json.loads(json.dumps(made.to_dict()))) == made


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (tables(train={"batchsize": 1}), "did you mean 'batch_size'"),
        (tables(train={"epoch": 1}), "did you mean 'epochs'"),
        (tables(data={"lable": "x"}), "did you mean 'label'"),
        (tables(model={"hiden": [1]}), "did you mean 'hidden'"),
        ({**tables(), "trian": {}}, "did you mean 'train'"),
        (tables(features=[{**FEATURES[0], "min_cout": 2}]), "did you mean 'min_count'"),
        (tables(split={"kind": "tme"}), "did you mean 'time'"),
        (tables(train={"wide_optimizer": "ftlr"}), "did you mean 'ftrl'"),
        (tables(train={"schedule": "plato"}), "did you mean 'plateau'"),
        (tables(model={"norm": "bath"}), "did you mean 'batch'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(changed: dict[str, Any], says: str) -> None:
    assert says in refused(changed)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (tables(train={"batch_size": True}), "batch_size must be an integer"),
        (tables(train={"batch_size": 4096.0}), "batch_size must be an integer"),
        (tables(train={"epochs": 0}), "epochs must be at least 1"),
        (tables(train={"wide_lr": float("nan")}), "wide_lr must be a finite number"),
        (tables(model={"hidden": []}), "hidden must list"),
        (tables(model={"hidden": [True]}), "hidden must be an integer"),
        (tables(model={"dropout": 1}), "dropout must be"),
        (tables(split={"valid": 0.5, "test": 0.5}), "both together below 1"),
        (tables(split={"valid": 0}), "valid must lie above 0"),
        (tables(data={"timestamp": None}), "needs [data] timestamp"),
        (tables(data={"item": None}), "items needs 'item'"),
        (tables(data={"items": "../items.parquet"}), "must lie under PATH"),
        (tables(data={"label": "user_id"}), "different columns"),
        (tables(data={"label": "age"}), "must not read its own answer"),
        ({**tables(), "features": {}}, "[[features]]"),
    ],
)
def test_a_value_that_cannot_be_is_refused(changed: dict[str, Any], says: str) -> None:
    assert says in refused(changed)


def test_a_rule_of_bins_is_kept_as_it_was_written() -> None:
    made = config(features=[FEATURES[0], {**FEATURES[1], "bins": "quantile:16"}, *FEATURES[2:]])
    assert made.to_dict()["features"][1]["bins"] == "quantile:16"
    assert Config.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_a_fault_of_the_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[data\n")
    for path in (tmp_path / "c.toml", tmp_path / "absent.toml", tmp_path):
        with pytest.raises(ConfigError, match=str(path)):
            read_config(path)


@pytest.mark.parametrize("name", ["adult", "criteo", "frappe", "movielens-1m", "v1", "v2"])
def test_a_shipped_config_is_read(name: str) -> None:
    assert read_config(Path(training.__file__).parent / "configs" / f"{name}.toml").train.wide_optimizer == "ftrl"
