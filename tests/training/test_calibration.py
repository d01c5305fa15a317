"""Corrections: what they make of a score, that they keep the order, and that serving says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from service.scorer import Scorer
from service.scoring.artifact import open_artifact
from service.scoring.known import KnownNames
from service.scoring.predictor import RankRequest, RowRequest
from service.scoring.prepared import attach, prepare
from tests.training.tiny_data import config, fit, write_data
from training.calibration import Isotonic, Platt, correct, isotonic, platt
from training.metrics import ece


def overconfident(rows: int = 200_000) -> tuple[np.ndarray, np.ndarray]:
    """Logits twice as large as the truth and off by one, and labels."""
    random = np.random.default_rng(3)
    truth = random.normal(-1, 1, rows)
    return 2 * truth + 1, random.random(rows) < 1 / (1 + np.exp(-truth))


def probability(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


def test_platt_finds_the_scale_and_the_shift() -> None:
    scale, shift = platt(*overconfident())
    assert scale == pytest.approx(0.5, abs=0.02)
    assert shift == pytest.approx(-0.5, abs=0.03)


@pytest.mark.parametrize("kind", ["platt", "isotonic"])
def test_a_correction_fitted_on_some_rows_calibrates_others_and_keeps_their_order(kind: str) -> None:
    logits, labels = overconfident()
    fitted, others = slice(0, 100_000), slice(100_000, None)
    if kind == "platt":
        module: torch.nn.Module = Platt(*platt(logits[fitted], labels[fitted]))
    else:
        module = Isotonic(*(torch.from_numpy(knots) for knots in isotonic(logits[fitted], labels[fitted])))
    corrected = module(torch.from_numpy(logits[others])).numpy()
    assert ece(labels[others], probability(logits[others])) > 0.1
    assert ece(labels[others], probability(corrected)) < 0.01
    assert (np.diff(corrected[np.argsort(logits[others])]) > 0).all()


def test_an_isotonic_correction_goes_on_beyond_its_knots() -> None:
    module = Isotonic(torch.tensor([-1.0, 1.0]), torch.tensor([-2.0, 0.0]))
    assert module(torch.tensor([-3.0, -1.0, 0.0, 1.0, 4.0])).tolist() == [-4.0, -2.0, -1.0, 0.0, 3.0]


@pytest.mark.parametrize("kind", ["platt", "isotonic"])
def test_a_corrected_version_serves_corrected_scores_and_explains_what_was_before(tmp_path: Path, kind: str) -> None:
    made = config(train={"calibration": kind}, split={"valid": 0.3})
    version = fit(made, write_data(tmp_path / "data"), tmp_path / "artifacts")  # the exam holds the halves too
    correction = json.loads((version / "manifest.json").read_text())["correction"]
    assert (correction["kind"], correction["fitted_on"]) == (kind, "valid")
    prepare(version, _empty(tmp_path / "prepared"))
    for predictor in (open_artifact(version).predictor, attach(tmp_path / "prepared")):
        known = KnownNames.of([predictor.schema])
        rows = {"user_id": 3, "age": 20, "item_id": "i1", "genres": ["g1"]}
        for request in (RowRequest([rows], True), RankRequest({"user_id": 3, "age": 20}, ["i1", "new"], {}, True)):
            (scored,) = Scorer(predictor, lambda known=known: known)([request])
            assert not isinstance(scored, Exception)
            assert scored.explanations is not None
            for score, explanation in zip(scored.scores, scored.explanations, strict=True):
                assert explanation.corrected
                logit = explanation.wide + explanation.deep
                if kind == "platt":
                    logit = correction["scale"] * logit + correction["shift"]
                    assert probability(np.array(logit)) == pytest.approx(float(score), abs=1e-5)


class Fixed(torch.nn.Module):
    """A model whose logits are its one input."""

    correction = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Inputs:
    """Rows of one batch."""

    def __init__(self, logits: np.ndarray) -> None:
        self.inputs = (torch.from_numpy(logits),)

    def slices(self, size: int) -> Iterator[Inputs]:
        yield self


def test_with_times_the_later_half_of_the_validation_part_teaches_the_correction() -> None:
    logits, labels = overconfident(20_000)
    times = np.arange(20_000.0)
    labels[:10_000] = ~labels[:10_000]  # of other days
    record = correct(Fixed(), "platt", Inputs(logits), labels.astype(np.float32), times)  # type: ignore[arg-type]  # all that is asked of them
    assert record["rows"] == 10_000
    assert record["scale"] == pytest.approx(0.5, abs=0.05)


def test_an_uncorrected_version_says_so(tmp_path: Path) -> None:
    version = fit(config(), write_data(tmp_path / "data"), tmp_path / "artifacts")
    assert not open_artifact(version).predictor.corrected


def _empty(folder: Path) -> Path:
    folder.mkdir()
    return folder
