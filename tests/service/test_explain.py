"""`explain`: what a score is made of, from a version that training published."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from service.scorer import Scorer
from service.scoring.artifact import open_artifact
from service.scoring.known import KnownNames
from service.scoring.predictor import RankRequest, RowRequest
from service.scoring.values import EncodeError
from tests.tiny import publish_tiny
from tests.training.tiny_data import config, fit, write_data


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    folder = tmp_path_factory.mktemp("explain")
    version = fit(config(), write_data(folder / "data"), folder / "artifacts")
    known = KnownNames.scan(folder / "artifacts")
    return Scorer(open_artifact(version).predictor, lambda: known)


@pytest.mark.parametrize(
    "request_",
    [
        RowRequest([{"user_id": 3, "age": 20, "item_id": "i1", "genres": ["g1", "g2"]}, {}], explain=True),
        RankRequest({"user_id": 3, "age": 20}, ["i1", "new", {"item_id": "i2", "price": 3}], explain=True),
    ],
)
def test_terms_add_up_to_the_logit(scorer: Scorer, request_: RowRequest | RankRequest) -> None:
    (scored,) = scorer([request_])
    assert not isinstance(scored, Exception)
    assert scored.explanations is not None
    for score, explanation in zip(scored.scores, scored.explanations, strict=True):
        assert sum(value for _, value in explanation.terms) == pytest.approx(explanation.wide, abs=1e-5)
        assert 1 / (1 + math.exp(-explanation.wide - explanation.deep)) == pytest.approx(float(score), abs=1e-6)


def test_terms_are_named_crosses_included(scorer: Scorer) -> None:
    (scored,) = scorer([RowRequest([{"age": 20}], explain=True)])
    assert not isinstance(scored, Exception)
    assert scored.explanations is not None
    names = [name for name, _ in scored.explanations[0].terms]
    assert names == ["age", "user_id", "age.bin", "item_id", "genres", "age.bin x genres", "user_id x item_id x genres"]


def test_nothing_is_explained_unasked(scorer: Scorer) -> None:
    (scored,) = scorer([RowRequest([{"age": 20}])])
    assert not isinstance(scored, Exception)
    assert scored.explanations is None
    assert np.isfinite(scored.scores).all()


def test_a_version_without_halves_says_that_it_cannot_explain(tmp_path: Path) -> None:
    predictor = open_artifact(publish_tiny(tmp_path)).predictor
    (found,) = Scorer(predictor, lambda: KnownNames.of([predictor.schema]))([RowRequest([{}], explain=True)])
    assert isinstance(found, EncodeError)
    assert "train it again" in found.faults[0].msg
