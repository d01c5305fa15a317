"""Downsampled negatives: which rows stay, and the probability that the module gives back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.scoring.artifact import open_artifact
from tests.training.tiny_data import config, fit, tables, write_data
from training.config import Config, ConfigError
from training.errors import DataFault
from training.evaluate import evaluate_version
from training.negatives import kept_rows


def test_positives_stay_and_negatives_stay_by_the_share() -> None:
    labels = (np.arange(10_000) % 5 == 0).astype(np.float32)
    kept = kept_rows(np.arange(10_000), labels, 0.25, seed=3)
    assert labels[kept].sum() == 2_000
    assert len(kept) - 2_000 == pytest.approx(2_000, abs=150)
    assert (np.diff(kept) > 0).all()
    assert (kept == kept_rows(np.arange(10_000), labels, 0.25, seed=3)).all()


def test_a_share_of_all_is_no_sample() -> None:
    rows = np.array([4, 9])
    assert kept_rows(rows, np.zeros(10, np.float32), 1.0, seed=3) is rows


@pytest.mark.parametrize("share", [0.0, 1.5, -0.1])
def test_a_share_that_cannot_be_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="above 0 and at most at 1"):
        Config.from_dict(tables(train={"negatives": share}))


def test_a_published_version_gives_probabilities_of_the_whole_data(tmp_path: Path) -> None:
    """The mean score over the rate of positives: 1 where the module undoes the sampling, about 2 where it does not."""
    data = write_data(tmp_path / "data")
    folder = fit(config(train={"negatives": 0.2, "epochs": 8}), data, tmp_path / "artifacts")
    open_artifact(folder)  # its exam is passed
    found, _ = evaluate_version(folder, data, split="train", device="cpu")
    assert found["calibration"] == pytest.approx(1, abs=0.25)


def test_a_share_that_leaves_no_negative_is_refused_by_its_name(tmp_path: Path) -> None:
    made = config(train={"negatives": 1e-9})
    with pytest.raises(DataFault, match=r"\[train\] negatives = 1e-09 leaves no negative row"):
        fit(made, write_data(tmp_path / "data"), tmp_path / "artifacts")
