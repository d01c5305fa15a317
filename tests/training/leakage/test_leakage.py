"""What leaks is named; what does not is left alone."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.training.leakage import world
from tests.training.tiny_data import clicks, fit, visible, write_data
from tests.training.tiny_data import config as tiny_config
from training import train
from training.config import Config
from training.errors import LeakFault
from training.leakage.finding import LEAK, NOTE

ROWS = world.clean()


def test_nothing_leaks_in_a_clean_log_and_a_running_count_of_the_past_is_honest(tmp_path: Path) -> None:
    found = world.report(tmp_path, ROWS, world.config())
    assert found.leaks == ()
    # The running count does grow with time, which is of note and true.
    assert [(f.level, f.check, f.column) for f in found.findings] == [(NOTE, "values shifted", "seen_before")]


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("click_count", "count over the whole file"),
        ("log_click_count", "count over the whole file"),
        ("next_click_time", "later than its row"),
        ("until_next_click", "time to a later row"),
        ("noisy_copy", "derived from the label"),
        ("target_mean", "target mean with its own row"),
        ("dwell_time", "derived from the label"),
    ],
)
def test_a_planted_leak_is_named_and_nothing_else_is(tmp_path: Path, name: str, check: str) -> None:
    found = world.report(tmp_path, {**ROWS, name: world.PLANTS[name](ROWS)}, world.config((name,)))
    assert check in [f.check for f in found.leaks]
    assert {f.column for f in found.leaks} == {name}
    assert all(f.evidence and f.advice for f in found.findings)


@pytest.mark.parametrize("name", ["click_count", "until_next_click", "target_mean"])
def test_a_leak_is_found_in_a_part_of_the_rows_too(tmp_path: Path, name: str) -> None:
    rows = {**ROWS, name: world.PLANTS[name](ROWS)}
    found = world.report(tmp_path, rows, world.config((name,)), most=8_000)
    assert found.looked_at == 8_000
    assert {f.column for f in found.leaks} == {name}


def test_a_copy_of_the_label_is_named_as_a_category_too(tmp_path: Path) -> None:
    rows = {**ROWS, "copy": world.noisy_copy(ROWS).astype(str)}
    assert {f.column for f in world.report(tmp_path, rows, world.config(("copy",), "categorical")).leaks} == {"copy"}


def test_a_column_that_only_positive_rows_have_is_named(tmp_path: Path) -> None:
    rows = {**ROWS, "order_value": np.where(ROWS["clicked"] == 1, 9.5, np.nan)}
    (leak,) = world.report(tmp_path, rows, world.config(("order_value",))).leaks
    assert (leak.check, leak.column) == ("written after the label", "order_value")


def test_a_smoothed_mean_and_one_without_the_own_row_are_named(tmp_path: Path) -> None:
    counts = np.bincount(ROWS["item_id"], minlength=world.ITEMS)[ROWS["item_id"]]
    positives = np.bincount(ROWS["item_id"], ROWS["clicked"], world.ITEMS)[ROWS["item_id"]]
    smoothed = (positives + 20 * ROWS["clicked"].mean()) / (counts + 20)
    without = (positives - ROWS["clicked"]) / np.maximum(counts - 1, 1)
    rows = {**ROWS, "smoothed": smoothed, "without": without}
    leaks = {f.column: f.check for f in world.report(tmp_path, rows, world.config(("smoothed", "without"))).leaks}
    assert leaks == {"smoothed": "target mean with its own row", "without": "changes with the label"}


def test_a_running_count_with_its_own_row_is_named(tmp_path: Path) -> None:
    rows = {**ROWS, "so_far": ROWS["seen_before"] + ROWS["clicked"]}
    leaks = {f.column: f.check for f in world.report(tmp_path, rows, world.config(("so_far",))).leaks}
    assert leaks == {"so_far": "running count with its own row"}


def test_a_random_split_over_time_is_named(tmp_path: Path) -> None:
    found = world.report(tmp_path, ROWS, world.config(split="random"))
    assert [(f.check, f.column) for f in found.leaks] == [("split mixes the times", "timestamp")]
    assert "units on both sides" in [f.check for f in found.findings]


def test_rows_that_stand_in_two_parts_are_named(tmp_path: Path) -> None:
    late = {name: np.concatenate([values, values[:1500]]) for name, values in ROWS.items()}
    made = world.config(split="random")
    assert "duplicates across the split" in [f.check for f in world.report(tmp_path, late, made).leaks]


def test_ids_of_single_rows_and_moved_values_are_of_note(tmp_path: Path) -> None:
    moved = ROWS["price"] * np.where(np.arange(world.ROWS) > 0.9 * world.ROWS, 3.0, 1.0)
    rows = {**ROWS, "request": np.arange(world.ROWS).astype(str), "moved": moved}
    features = [*world.config(("moved",)).to_dict()["features"]]
    tables = world.config().to_dict() | {"features": [*features, {**features[2], "name": "request"}]}
    found = world.report(tmp_path, rows, Config.from_dict(tables))
    assert found.leaks == ()
    assert {("id of single rows", "request"), ("values shifted", "moved")} <= {
        (f.check, f.column) for f in found.findings
    }


def leaky(folder: Path) -> Path:
    rows = clicks()
    return write_data(folder, rows.append_column("copy", rows.column("clicked").cast(pa.float64())))


def leaky_config() -> Config:
    features = [*tiny_config().to_dict()["features"], {"name": "copy", "kind": "numeric", "side": "context"}]
    return tiny_config(features=features)


def test_the_report_is_a_table_in_the_log_and_a_list_in_the_manifest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "training"):
        version = fit(leaky_config(), leaky(tmp_path / "data"), tmp_path / "artifacts")
    assert "derived from the label" in caplog.text
    found = json.loads((version / "manifest.json").read_text())["leakage"]
    assert {f["column"] for f in found["findings"] if f["level"] == LEAK} == {"copy"}


def test_strict_refuses_a_leak_and_publishes_nothing(tmp_path: Path) -> None:
    made, data = leaky_config(), leaky(tmp_path / "data")
    with pytest.raises(LeakFault, match="copy"):
        train.main(made, data, tmp_path / "artifacts", "v1", device="cpu", command="a test", strict=True)
    assert visible(tmp_path / "artifacts") == []
