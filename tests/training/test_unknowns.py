"""The unknown id: how often it stands in for a value, and that it is trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from service.scoring.artifact import open_artifact
from service.scoring.encoded import Bag, Encoded
from service.scoring.layout import IdColumn, Layout
from service.scoring.predictor import RowRequest
from tests.training.tiny_data import config, fit, write_data
from training.batches import Batch
from training.unknowns import LEAST, MOST, unknown_shares


def shares(values: list[int], positions: list[float] | None, *, rare: bool = False, holdout: float = 0.5) -> float:
    layout = Layout((), (IdColumn("a", "a", "user", max(values) + 1, 8, True, rare, False),), (), ())
    encoded = Encoded(np.zeros((len(values), 0), np.float32), np.array(values).reshape(-1, 1), ())
    order = None if positions is None else np.array(positions)
    return unknown_shares(layout, encoded, order, holdout)[0][0]


def test_a_column_whose_values_come_back_is_replaced_in_a_token_share_of_rows() -> None:
    assert shares([2, 3, 2, 3], [0, 1, 2, 3]) == LEAST


def test_a_column_of_ever_new_values_is_replaced_as_often_as_the_bound_allows() -> None:
    assert shares([2, 3, 4, 5], [0, 1, 2, 3]) == MOST


def test_the_share_follows_the_order_in_time_and_not_that_of_the_rows() -> None:
    # In time: 2 2 2 2 2 then 2 2 2 2 3: one row in five is new.
    assert shares([3, *[2] * 9], [9, *range(9)]) == pytest.approx(0.2)


def test_without_an_order_the_share_is_that_of_values_seen_once() -> None:
    assert shares([2] * 9 + [3], None) == pytest.approx(0.1)


def test_rare_values_that_share_the_unknown_id_count_towards_the_share() -> None:
    assert shares([0, 0, 0, 2, 2], [0, 1, 2, 3, 4], rare=True) == 0.0


def batch(rows: int = 50) -> Batch:
    bag = Bag(np.tile(np.array([2, 3, 4]), rows), np.arange(rows + 1) * 3)
    encoded = Encoded(np.zeros((rows, 1), np.float32), np.full((rows, 2), 5), (bag,))
    return Batch.of(encoded, np.zeros(rows, np.float32), "cpu")


def test_replacing_leaves_the_rows_themselves_alone_and_hits_the_share_exactly() -> None:
    rows = batch()
    changed = rows.with_unknown([0.1, 0.0], [0.2], torch.Generator().manual_seed(1))
    assert int((changed.ids[:, 0] == 0).sum()) == 5
    assert int((changed.ids[:, 1] == 0).sum()) == 0
    assert int((changed.bag_values[0] == 0).sum()) == 10
    assert not (rows.ids == 0).any()
    assert not (rows.bag_values[0] == 0).any()


def test_a_share_that_rounds_to_no_row_still_replaces_one() -> None:
    changed = batch(3).with_unknown([0.01, 0.0], [0.01], torch.Generator().manual_seed(1))
    assert int((changed.ids[:, 0] == 0).sum()) == 1
    assert int((changed.bag_values[0] == 0).sum()) == 1


def test_an_epoch_meets_every_row_once_with_its_own_bag() -> None:
    bag = Bag(np.repeat(np.arange(10), np.arange(1, 11)), np.concatenate([[0], np.cumsum(np.arange(1, 11))]))
    encoded = Encoded(np.arange(10, dtype=np.float32).reshape(-1, 1), np.arange(10).reshape(-1, 1), (bag,))
    rows = Batch.of(encoded, np.zeros(10, np.float32), "cpu").take(torch.tensor([9, 0, 3, 1, 2, 8, 4, 7, 5, 6]))
    seen = []
    for one in rows.slices(4):
        for n in range(one.rows):
            number = int(one.ids[n, 0])
            own = one.bag_values[0][one.bag_offsets[0][n] : one.bag_offsets[0][n + 1]]
            assert own.tolist() == [number] * (number + 1)
            seen.append(number)
    assert sorted(seen) == list(range(10))


def test_the_unknown_id_of_every_table_is_trained(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    one, more = (
        open_artifact(fit(config(train={"epochs": epochs, "patience": 50}), data, tmp_path / "artifacts", f"v{epochs}"))
        for epochs in (1, 4)
    )
    row = {"user_id": "never", "item_id": "never", "genres": ["never"], "age": 30, "price": 5}
    scores = [version.predictor.scores_of(RowRequest([row]))[0] for version in (one, more)]
    assert scores[0] != scores[1]


def test_en04_two_unseen_users_score_alike_and_unlike_known_ones(tmp_path: Path) -> None:
    made = config(train={"epochs": 6, "patience": 50, "deep_lr": 0.1})
    predictor = open_artifact(fit(made, write_data(tmp_path / "data"), tmp_path / "artifacts")).predictor
    users = ["new-A", "new-B", 0, 39]
    rows = [{"user_id": user, "age": 30, "item_id": "i1", "price": 5, "genres": ["g1"]} for user in users]
    scores = predictor.scores_of(RowRequest(rows)).tolist()
    assert scores[0] == pytest.approx(scores[1], abs=1e-7)
    assert abs(scores[0] - scores[2]) > 1e-6
    assert abs(scores[0] - scores[3]) > 1e-6
