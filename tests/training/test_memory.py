"""Memory that runs out is said with the table and the batch that take it; parts of a batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from service.scoring.artifact import read_manifest
from service.scoring.layout import IdColumn, Layout
from tests.training.tiny_data import config, fit, write_data
from training.config import TrainConfig
from training.errors import FitError
from training.memory import told_of_memory
from training.model import WideDeep

LAYOUT = Layout((), tuple(IdColumn(n, n, "user", s, 4, True, False, False) for n, s in (("a", 9), ("b", 50))), (), ())


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_a_full_device_is_named_with_the_table_and_the_batch(error: Exception) -> None:
    model = WideDeep(LAYOUT, (4,), 0.0)
    says = r"on cuda .*batch_size 4096, the largest table is 'b' \(50 ids of dim 4\)"
    with pytest.raises(FitError, match=says), told_of_memory(model, LAYOUT, TrainConfig(), "cuda"):
        raise error


def test_another_error_passes() -> None:
    with (
        pytest.raises(RuntimeError, match="shapes"),
        told_of_memory(WideDeep(LAYOUT, (4,), 0), LAYOUT, TrainConfig(), "cpu"),
    ):
        raise RuntimeError("shapes differ")


def test_a_batch_in_parts_comes_to_the_same_model(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    whole = fit(config(model={"dropout": 0.0}), data, tmp_path / "a")
    parts = fit(config(model={"dropout": 0.0}, train={"accumulate": 4}), data, tmp_path / "b")
    one, other = (read_manifest(folder)["epochs"][-1]["loss"] for folder in (whole, parts))
    assert one == pytest.approx(other, abs=1e-5)
