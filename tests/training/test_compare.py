"""Paired differences: DeLong's interval against the bootstrap, units together, two real versions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from tests.training.tiny_data import config, fit, write_data
from training.__main__ import main
from training.compare import paired


def pair(rows: int = 2_000, seed: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels and the scores of two models, the second a little better."""
    random = np.random.default_rng(seed)
    labels = random.random(rows) < 0.3
    shared = random.normal(0, 1, rows) + labels
    a, b = shared + random.normal(0, 0.6, rows), shared + random.normal(0, 0.45, rows)
    return labels, 1 / (1 + np.exp(1 - a)), 1 / (1 + np.exp(1 - b))


def test_values_are_scikit_learns_and_the_interval_is_the_bootstraps() -> None:
    labels, a, b = pair()
    found = paired(labels, a, b, None)
    assert found["auc"]["a"] == pytest.approx(roc_auc_score(labels, a))
    assert found["logloss"]["b"] == pytest.approx(log_loss(labels, b))
    random = np.random.default_rng(0)
    drawn = []
    for _ in range(400):
        rows = random.integers(0, len(labels), len(labels))
        drawn.append(roc_auc_score(labels[rows], b[rows]) - roc_auc_score(labels[rows], a[rows]))
    low, high = found["auc"]["interval"]
    assert (high - low) / 2 == pytest.approx(1.96 * np.std(drawn), rel=0.1)
    assert found["auc"]["difference"] == pytest.approx(float(np.mean(drawn)), abs=1e-3)


def test_a_version_against_itself_differs_by_nothing() -> None:
    labels, a, _ = pair()
    found = paired(labels, a, a, None)
    for metric in ("auc", "logloss"):
        assert (found[metric]["difference"], found[metric]["interval"], found[metric]["p"]) == (0, [0, 0], 1)


def test_rows_of_one_unit_count_as_one() -> None:
    labels, a, b = pair()
    copies = [np.repeat(values, 4) for values in (labels, a, b)]
    alone = paired(labels, a, b, None)["auc"]["interval"]
    together = paired(*copies, np.repeat(np.arange(len(labels)), 4))["auc"]["interval"]
    assert together == pytest.approx(alone, rel=1e-3)


def test_two_versions_are_compared_on_the_rows_of_both_their_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_data(tmp_path / "data")
    a = fit(config(), data, tmp_path / "artifacts", "a")
    b = fit(config(train={"epochs": 1}, split={"test": 0.2}), data, tmp_path / "artifacts", "b")
    capsys.readouterr()
    assert main(["compare", str(a), str(b), "--data", str(data), "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["a"], found["b"], found["rows"], found["unit"]) == ("a", "b", 60, "user_id")
    low, high = found["auc"]["interval"]
    assert low <= found["auc"]["difference"] <= high
