"""What TensorBoard is told of the model."""

from __future__ import annotations

import pytest
import torch

from service.scoring.layout import IdColumn, Layout
from training.config import TrainConfig
from training.model import WideDeep
from training.optimizers import build_optimizers
from training.watched import watched


def test_rates_norms_and_zeros_are_told() -> None:
    columns = tuple(IdColumn(name, name, "user", 4, dim, True, False, False) for name, dim in (("a", 2), ("b", 3)))
    model = WideDeep(Layout((), columns, (), ()), (4,), 0.0)
    with torch.no_grad():
        model.wide.weight[0] = 2.0
    found = watched(model, build_optimizers(model, TrainConfig(deep_lr=0.25)))
    assert found["norm/wide"] == 2.0
    assert found["wide/share_not_zero"] == pytest.approx(1 / 8)
    assert {"norm/tables.0.weight", "norm/tables.1.weight"} <= found.keys()
    assert 0.25 in found.values()
