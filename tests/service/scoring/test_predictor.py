"""The ranking form, the row form and the eager module give one score to one user and item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.scoring.artifact import open_artifact
from service.scoring.predictor import Predictor, RankRequest, RowRequest
from service.scoring.values import EncodeError
from tests.tiny import ITEMS, USERS, publish_tiny, tiny_encoder

USER = {"user_id": "u1", "age": 33}
CONTEXT = {"shown_at": 1_700_000_000}


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return open_artifact(publish_tiny(tmp_path_factory.mktemp("artifacts"))).predictor


def score(predictor: Predictor, request: RowRequest | RankRequest) -> list[float]:
    return predictor.scores_of(request).tolist()


def as_rows(*items: dict[str, Any]) -> RowRequest:
    return RowRequest([{**USER, **CONTEXT, **item} for item in items])


def test_a_candidate_scores_as_its_full_row(predictor: Predictor) -> None:
    ranked = score(predictor, RankRequest(USER, [item["item_id"] for item in ITEMS], CONTEXT))
    assert ranked == pytest.approx(score(predictor, as_rows(*ITEMS)), abs=1e-6)


def test_candidates_may_repeat_and_keep_their_order(predictor: Predictor) -> None:
    once = score(predictor, RankRequest(USER, ["i3", "i1"], CONTEXT))
    assert score(predictor, RankRequest(USER, ["i1", "i3", "i1"], CONTEXT)) == [once[1], once[0], once[1]]


@pytest.mark.parametrize(
    ("candidate", "row"),
    [
        ({"item_id": "i1"}, {"price": 1.0, "genres": ["b", "c", "d"]}),
        ({"item_id": "i1", "price": 19}, {"price": 19, "genres": ["b", "c", "d"]}),
        ({"item_id": "i1", "genres": ["a"]}, {"price": 1.0, "genres": ["a"]}),
        ({"item_id": "i1", "genres": None, "price": 2}, {"price": 2}),
        ("new", {}),
        ({"item_id": "new", "price": 4, "genres": ["c", "zz"]}, {"price": 4, "genres": ["c", "zz"]}),
    ],
)
def test_an_object_overrides_the_catalog_feature_by_feature(predictor: Predictor, candidate: Any, row: Any) -> None:
    among_others = RankRequest(USER, ["i0", candidate, {"item_id": "i2", "price": 7}], CONTEXT)
    assert score(predictor, among_others)[1] == pytest.approx(score(predictor, as_rows(row))[0], abs=1e-6)


def test_unknown_items_are_counted_and_change_no_neighbour(predictor: Predictor) -> None:
    alone = score(predictor, RankRequest(USER, ["i1", "i2"], CONTEXT))
    batch = predictor.encode([RankRequest(USER, ["i1", "new", "i2", "other"], CONTEXT)])
    scores = predictor.score(batch)[0].tolist()
    assert batch.strangers() == [2]
    assert [scores[0], scores[2]] == pytest.approx(alone, abs=1e-6)


def test_values_of_the_request_are_counted_and_those_of_the_catalog_are_not(predictor: Predictor) -> None:
    candidates = ["i1", {"item_id": "i2", "genres": ["zz"]}, "new"]
    batch = predictor.encode([RankRequest({"user_id": "stranger"}, candidates)])
    assert batch.unknown == {"user_id": 1, "genres": 1}
    assert batch.missing == {"age": 1, "shown_at": 1, "price": 1, "genres": 1}


def test_ba04_a_score_does_not_depend_on_who_shares_the_batch(predictor: Predictor) -> None:
    rng = np.random.default_rng(5)
    rows = [{**USERS[rng.integers(10)], **ITEMS[rng.integers(20)]} for _ in range(500)]
    rows[7] |= {"price": 1e30, "age": -1e30}
    alone = [RowRequest([row]) for row in rows]
    wanted = [float(predictor.scores_of(one)[0]) for one in alone]
    for size in (2, 32, 256):
        order = rng.permutation(500)
        for start in range(0, 500, size):
            batch = order[start : start + size]
            found = predictor.score(predictor.encode([alone[n] for n in batch]))
            assert [float(scores[0]) for scores in found] == pytest.approx([wanted[n] for n in batch], abs=1e-5)


@pytest.mark.parametrize("candidate", [None, True, 1.5, ["i1"], {"price": 3}, {"item_id": None}, {"item_id": [1]}])
def test_a_candidate_without_an_item_id_is_a_fault_at_its_place(predictor: Predictor, candidate: object) -> None:
    with pytest.raises(EncodeError) as caught:
        predictor.encode([RankRequest(USER, ["i1", candidate])])
    assert caught.value.faults[0].loc[:2] == ("candidates", 1)


def test_faults_are_placed_as_in_the_body(predictor: Predictor) -> None:
    requests = {
        ("user", "age"): RankRequest({"age": "old"}, ["i1"]),
        ("context", "shown_at"): RankRequest(USER, ["i1"], {"shown_at": "noon"}),
        ("candidates", 2, "genres"): RankRequest(USER, ["i1", "i2", {"item_id": "i3", "genres": "a"}]),
        ("instances", 1, "price"): RowRequest([{}, {"price": "1"}]),
    }
    for loc, request in requests.items():
        with pytest.raises(EncodeError) as caught:
            predictor.encode([request])
        assert [fault.loc for fault in caught.value.faults] == [loc]


def test_the_item_key_as_a_feature_of_its_own(tmp_path: Path) -> None:
    features = [
        {"name": "item_id", "kind": "categorical", "side": "item"},
        {"name": "price", "kind": "numeric", "side": "item"},
    ]
    encoder = tiny_encoder(features=features, crosses=[])
    predictor = open_artifact(publish_tiny(tmp_path, encoder=encoder)).predictor
    by_row = score(predictor, RowRequest([{"item_id": "i4", "price": 4.0}, {"item_id": "new"}]))
    assert score(predictor, RankRequest({}, ["i4", "new"])) == pytest.approx(by_row, abs=1e-6)


def test_scores_carry_no_gradient_and_are_float32(predictor: Predictor) -> None:
    scores = predictor.scores_of(as_rows(*ITEMS))
    assert isinstance(scores, np.ndarray)
    assert scores.dtype == np.float32
