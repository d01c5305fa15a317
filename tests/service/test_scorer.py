"""Scorer and feature names: real encoder, hand-made engine."""

import pytest

from service.feature_names import FeatureNames, Ignored
from service.scorer import Counted, NonFiniteScore, Scored, Scorer, ScoringFailed, row_count
from service.scoring.known import KnownNames
from service.scoring.predictor import Predictor, RankRequest, RowRequest
from service.scoring.schema import FeatureSchema
from service.scoring.values import EncodeError
from tests.service.desk import Engine, by_price, catalog, encoder

KNOWN = KnownNames.of([encoder().schema])


def scorer(engine: Engine, **options) -> Scorer:
    return Scorer(Predictor("v1", encoder(), engine, catalog()), lambda: KNOWN, **options)


def row(**values: object) -> RowRequest:
    return RowRequest([{"price": 3, **values}])


def test_many_requests_are_one_forward_and_each_gets_its_own_scores():
    engine = Engine(by_price)
    results = scorer(engine)([row(price=0), RankRequest({}, ["i19", "i0"]), row(price=19)])
    assert engine.calls == [4]
    assert [result.scores.tolist() for result in results] == [
        pytest.approx([0.1], abs=1e-6),
        pytest.approx([0.9, 0.1], abs=1e-6),
        pytest.approx([0.9], abs=1e-6),
    ]
    assert [result.unknown_items for result in results] == [None, 0, None]


def test_a_bad_request_keeps_its_place_and_is_not_scored():
    engine = Engine(by_price)
    results = scorer(engine)([row(), row(age="x"), row(agee=1), row()])
    assert [type(result) for result in results] == [Scored, EncodeError, EncodeError, Scored]
    assert engine.calls == [2]


def test_without_a_good_request_the_model_is_left_alone():
    engine = Engine(by_price)
    scorer(engine)([row(age="x")])
    assert engine.calls == []


def test_a_bug_that_one_request_provokes_is_its_own():
    class Hostile(dict):
        def __iter__(self):
            raise RecursionError("deep")

    results = scorer(Engine(by_price))([row(), RowRequest([Hostile()]), row()])
    assert [type(result) for result in results] == [Scored, ScoringFailed, Scored]
    assert isinstance(results[1].__cause__, RecursionError)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_pr02_a_score_that_is_not_finite_fails_its_request_alone(value: float):
    def score(encoded):
        scores = by_price(encoded)
        scores[1] = value
        return scores

    results = scorer(Engine(score))([row(), row(), row()])
    assert [type(result) for result in results] == [Scored, NonFiniteScore, Scored]


def test_rows_are_instances_or_candidates():
    assert row_count(RowRequest([{}, {}])) == 2
    assert row_count(RankRequest({}, ["i0", "i1", "i2"])) == 3


def test_a_batch_is_counted_once_without_what_was_refused():
    told: list[Counted] = []
    requests = [row(genres=["new"]), row(age=3, genres=["a"]), row(genres=["new"], age="x")]
    scorer(Engine(by_price), count=told.append)(requests)
    (counted,) = told
    assert len(counted.scores) == 2
    assert counted.unknown["genres"] == 1
    assert counted.missing["age"] == 1


def test_unit_and_item_key_are_names_though_they_are_no_features():
    schema = FeatureSchema.parse([{"name": "age", "kind": "numeric", "side": "user"}], unit="visitor", item="sku")
    names = FeatureNames.of(schema)
    known = KnownNames.of([schema])
    request = RankRequest({"visitor": 1, "age": 3}, [{"sku": 1}])
    assert names.check(request, known, ignore=False) == ([], None)
    assert names.check(RowRequest([{"visitor": 1, "sku": 2}]), known, ignore=False) == ([], None)


def test_the_nearest_name_is_looked_for_on_the_same_side():
    faults, _ = FeatureNames.of(encoder().schema).check(RankRequest({"prise": 1}, ["i0"]), KNOWN, ignore=False)
    assert faults[0].type == "unknown_feature"
    assert "price" not in faults[0].msg


def test_ignored_names_are_counted_by_name_only_where_some_version_knows_them():
    request = RankRequest({"made up": 1, "genres": []}, ["i0", {"item_id": "i1", "made up": 1}])
    faults, ignored = FeatureNames.of(encoder().schema).check(request, KNOWN, ignore=True)
    assert faults == []
    assert ignored == Ignored({"genres": 1}, unlisted=2)
