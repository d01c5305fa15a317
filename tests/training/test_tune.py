"""The search: ranges from the config, judged on the validation part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.test_command import toml
from tests.training.tiny_data import config, write_data
from training.__main__ import main
from training.config import ConfigError
from training.tune import Search

RANGES = """
[tune]
trials = 3
[tune.ranges]
"train.deep_lr" = { low = 1e-3, high = 1e-1, log = true }
"train.epochs" = { low = 1, high = 2 }
"model.hidden" = { choices = [[8], [8, 4]] }
"""


def test_a_search_prints_the_best_settings_as_toml_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_data(tmp_path)
    path = toml(tmp_path)
    path.write_text(path.read_text() + RANGES)
    assert main(["tune", "--config", str(path), "--data", str(tmp_path), "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = json.loads(lines[-1])
    assert (found["trials"], found["metric"]) == (3, "auc")
    assert found["settings"].keys() == {"train.deep_lr", "train.epochs", "model.hidden"}
    assert 1e-3 <= found["settings"]["train.deep_lr"] <= 1e-1
    assert "[train]" in lines
    assert any(line.startswith("hidden = [8") for line in lines)


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"ranges": {}}, "at least one range"),
        ({"ranges": {"train.deeplr": {"low": 0, "high": 1}}}, "'train.deeplr' cannot be searched.*train.deep_lr"),
        ({"ranges": {"train.deep_lr": {"low": 1, "high": 0}}}, "low the smaller one"),
        ({"ranges": {"train.deep_lr": {"low": 0, "high": 1, "log": True}}}, "above 0"),
        ({"ranges": {"train.deep_lr": [0, 1]}}, "must be"),
        ({"trials": 0, "ranges": {"train.l1": {"low": 0, "high": 1}}}, "trials must be"),
        ({"metric": "accuracy"}, "must be one of"),
        ({"trails": 3}, "unknown key 'trails'.*trials"),
    ],
)
def test_a_range_that_cannot_be_searched_is_refused(tables: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Search.parse(tables, config())
