"""Field cases of training, through the command that users run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from service.scoring.artifact import open_artifact, read_manifest
from service.scoring.features import FeatureEncoder
from service.scoring.predictor import RowRequest
from service.scoring.schema import FeatureSchema
from tests.training.tiny_data import clicks, config, fit, visible, write_data
from training.__main__ import main
from training.reading import read_rows

TOML = """
[data]
format = "csv"
label = "clk"
[split]
kind = "random"
[[features]]
name = "user_id"
kind = "categorical"
side = "user"
[[features]]
name = "item_id"
kind = "categorical"
side = "item"
[model]
hidden = [4]
[train]
epochs = 1
"""


def fit_csv(folder: Path, text: str, toml: str = TOML) -> int:
    (folder / "rows.csv").write_text(text)
    (folder / "config.toml").write_text(toml)
    words = ["fit", "--config", str(folder / "config.toml"), "--data", str(folder / "rows.csv")]
    return main([*words, "--artifacts", str(folder / "artifacts"), "--version", "v1"])


def csv(rows: int = 60, label: str = "") -> str:
    lines = [f"u{n % 7},i{n % 5},{label or n % 2}" for n in range(rows)]
    return "\n".join(["user_id,item_id,clk", *lines]) + "\n"


@pytest.mark.parametrize(
    ("first", "second", "line", "found"),
    [("u1,i1,1,", "u2,i2,0,", 2, 4), ("u1,i1,1", "u2,i2,0,", 3, 4), ("u1,i1", "u2,i2,0", 2, 2)],
)
def test_tr01_a_ragged_line_stops_with_its_number_and_publishes_nothing(
    first: str, second: str, line: int, found: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = csv()
    header, rest = text.split("\n", 1)
    assert fit_csv(tmp_path, f"{header}\n{first}\n{second}\n{rest}") == 1
    error = capsys.readouterr().err
    assert "rows.csv" in error
    assert f"line {line}" in error
    assert f"expected 3 fields, found {found}" in error
    assert visible(tmp_path / "artifacts") == []


def test_tr02_an_id_is_one_id_in_every_block_of_a_large_file(tmp_path: Path) -> None:
    ids = [*map(str, range(600_000)), "abc", *map(str, range(600_000))]
    path = tmp_path / "large.csv"
    path.write_text("user_id\n" + "\n".join(ids) + "\n")
    table = read_rows([path], "csv", ["user_id"]).table
    schema = FeatureSchema.parse([{"name": "user_id", "kind": "categorical", "side": "user"}])
    encoder = FeatureEncoder.fit(schema, table)
    counts = np.bincount(encoder.encode_table(table).ids[:, 0])
    assert len(counts) == 2 + 600_001
    assert sorted(set(counts[2:].tolist())) == [1, 2]
    assert (counts[2:] == 1).sum() == 1


def test_tr04_one_class_only_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit_csv(tmp_path, csv(label="1")) == 1
    assert "both classes" in capsys.readouterr().err
    assert visible(tmp_path / "artifacts") == []


def test_tr04_an_undefined_validation_auc_is_null_with_a_reason(tmp_path: Path) -> None:
    rows = clicks()
    values = rows.column("clicked").to_numpy().copy()
    values[480:540] = 0
    rows = rows.set_column(rows.column_names.index("clicked"), "clicked", pa.array(values))
    version = fit(config(), write_data(tmp_path / "data", rows), tmp_path / "artifacts")
    found = read_manifest(version)["metrics"]["valid"]
    assert found["auc"] is None
    assert found["reason"]


def test_tr04_the_best_epoch_is_published_whatever_the_patience(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", clicks(rows=3000))
    train = {"epochs": 12, "deep_lr": 0.1}
    manifests = []
    for patience in (2, 8):
        made = config(train={**train, "patience": patience})
        manifests.append(read_manifest(fit(made, data, tmp_path / "artifacts", f"v{patience}")))
    short, long = manifests
    assert short["best_epoch"] < len(short["epochs"])
    if long["best_epoch"] <= len(short["epochs"]):
        assert long["best_epoch"] == short["best_epoch"]
    best = max(epoch["valid"]["auc"] for epoch in short["epochs"])
    assert short["metrics"]["valid"]["auc"] == pytest.approx(best, abs=1e-9)


def test_tr04_the_published_version_reproduces_its_validation_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_data(tmp_path / "data")
    version = fit(config(), data, tmp_path / "artifacts")
    assert main(["evaluate", "--artifact", str(version), "--data", str(data), "--split", "valid"]) == 0
    found = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    wanted = read_manifest(version)["metrics"]["valid"]
    for name in ("auc", "logloss", "gauc", "ne", "calibration"):
        assert found[name] == pytest.approx(wanted[name], abs=1e-6)
    assert (found["rows"], found["positives"]) == (wanted["rows"], wanted["positives"])


def test_ex03_a_rare_click_is_served_as_a_rare_probability(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    rows = clicks(rows=20_000)
    rare = random.random(20_000) < np.where(np.arange(20_000) % 2, 0.03, 0.01)
    rows = rows.set_column(rows.column_names.index("clicked"), "clicked", pa.array(rare.astype(np.int8)))
    version = fit(config(train={"batch_size": 512}), write_data(tmp_path / "data", rows), tmp_path / "artifacts")
    predictor = open_artifact(version).predictor
    raw: list[dict[str, Any]] = rows.select(["user_id", "age", "timestamp", "item_id"]).to_pylist()[:16_000]
    scores = predictor.scores_of(RowRequest(raw))
    assert ((scores >= 0) & (scores <= 1)).all()
    assert (scores < 0.5).any()
    assert scores.mean() == pytest.approx(rare[:16_000].mean(), rel=0.2)


def test_ex03_the_served_scores_give_the_reported_log_loss(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    version = fit(config(), data, tmp_path / "artifacts")
    from training.evaluate import evaluate_version

    found, _ = evaluate_version(version, data, split="test", device="cpu")
    assert found["logloss"] == pytest.approx(read_manifest(version)["metrics"]["test"]["logloss"], abs=1e-5)
    assert math.isfinite(found["logloss"])


def test_the_same_seed_gives_the_same_weights_to_the_last_bit(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    versions = [fit(config(), data, tmp_path / "artifacts", name) for name in ("a", "b")]
    digests = [read_manifest(version)["files"] for version in versions]
    names = ["encoder.json", "exam.json", *[name for name in digests[0] if name.startswith("vocabularies/")]]
    assert [digests[0][name] for name in names] == [digests[1][name] for name in names]
    other = fit(config(train={"seed": 9}), data, tmp_path / "artifacts", "c")
    assert read_manifest(other)["files"]["exam.json"] != digests[0]["exam.json"]


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_a_last_batch_of_one_row_trains(tmp_path: Path, norm: str) -> None:
    # 480 rows train: 479 and then one.
    made = config(train={"batch_size": 479, "epochs": 1}, model={"norm": norm})
    assert fit(made, write_data(tmp_path / "data"), tmp_path / "artifacts").is_dir()


def test_a_name_that_exists_is_refused_before_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit_csv(tmp_path, csv()) == 0
    assert fit_csv(tmp_path, "this is no data at all") == 1
    assert "exists already" in capsys.readouterr().err
