"""Permutation importance: what matters comes first, what does not is worth nothing."""

from __future__ import annotations

import numpy as np
import torch

from service.scoring.encoded import Bag, Encoded
from service.scoring.layout import IdColumn, Layout, NumericColumn
from training.batches import Batch
from training.report.importance import importances


def test_a_feature_that_decides_comes_first_and_one_that_is_not_read_is_worth_nothing() -> None:
    random = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 5, (2_000, 2), generator=random)
    numerics = torch.rand(2_000, 1, generator=random)
    labels = (ids[:, 0] + numerics[:, 0] > 2.5).float()
    values, offsets = torch.randint(0, 3, (2_000,), generator=random), torch.arange(2_001)
    columns = [IdColumn(name, name, "user", 5, 2, False, False, False) for name in ("group", "unread", "tags")]
    encoded = Encoded(numerics.numpy(), ids.numpy(), (Bag(values.numpy(), offsets.numpy()),))
    layout = Layout((NumericColumn("number", "user", False),), tuple(columns[:2]), (columns[2],), ())

    def score(rows: Batch) -> np.ndarray:
        return ((rows.ids[:, 0] + rows.numerics[:, 0]) / 6).numpy()

    found = importances(score, layout, encoded, labels.numpy(), "cpu", seed=1)
    assert [one.feature for one in found][:2] == ["group", "number"]
    assert {one.feature: one.auc_drop for one in found}["unread"] == 0
    assert {one.feature: one.auc_drop for one in found}["tags"] == 0
    assert found[0].auc_drop > 0.3
