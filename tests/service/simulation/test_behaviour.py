"""What the synthetic users do: the truths of the scenarios."""

import random
from collections import Counter

import pytest

from service.simulation.behaviour import LOST, RATE, Truth, Visit, clicks, visits
from service.traffic import Split

SCHEMA = {
    "features": [
        {"name": "age", "kind": "numeric"},
        {"name": "genres", "kind": "multi"},
        {"name": "shown_at", "kind": "datetime"},
        {"name": "user_id", "kind": "categorical"},
    ]
}
SPLIT = Split("e", (("v1", 1.0), ("v2", 1.0)), 1.0, "v1")
SCORES = [0.1, 0.2, 0.3, 0.4, 0.5]


def truth(scenario):
    return Truth(scenario, "v1", "v2", SPLIT, lift=0.5)


def rate(scenario, version):
    generator = random.Random(1)
    visit = Visit("u", 0.1, [])
    found = [clicks(truth(scenario), visit, version, SCORES, generator.random) for _ in range(8000)]
    return sum(map(len, found)) / 8000 / len(SCORES)


def test_the_same_seed_draws_the_same_users():
    first, second = (list(visits(truth("aa"), SCHEMA, 20, seed=3)) for _ in range(2))
    assert [(one.unit, one.rate) for one in first] == [(one.unit, one.rate) for one in second]


def test_every_feature_is_sent_with_its_kind():
    (row, *_) = next(visits(truth("aa"), SCHEMA, 1, 0)).instances
    assert [type(row[name]) for name in ("age", "genres", "shown_at", "user_id")] == [float, list, int, str]


def test_users_come_back_three_times_in_the_mean():
    found = Counter(one.unit for one in visits(truth("aa"), {"features": []}, 3000, 5))
    assert len(found) == 3000
    assert found.total() / 3000 == pytest.approx(3.0, abs=0.2)


def test_click_rates_are_five_percent_in_the_mean():
    rates = {one.unit: one.rate for one in visits(truth("aa"), {"features": []}, 3000, 5)}
    assert sum(rates.values()) / 3000 == pytest.approx(RATE[0] / sum(RATE), abs=0.003)


def test_without_a_difference_both_versions_are_clicked_alike():
    assert rate("aa", "v1") == rate("aa", "v2") == pytest.approx(0.1, abs=0.005)


def test_a_lift_is_the_challengers_alone():
    assert rate("lift", "v1") == pytest.approx(0.1, abs=0.005)
    assert rate("lift", "v2") == pytest.approx(0.15, abs=0.005)


def test_a_broken_split_loses_users_of_the_default_alone():
    whole = {one.unit for one in visits(truth("aa"), {"features": []}, 4000, 7)}
    left = {one.unit for one in visits(truth("srm"), {"features": []}, 4000, 7)}
    arms = Counter(SPLIT.assign(unit).version for unit in left)
    assert len(whole) == 4000
    assert arms["v1"] / arms["v2"] == pytest.approx(1 - LOST, abs=0.06)


def test_under_a_leak_the_best_scores_are_clicked_most():
    generator, counts = random.Random(2), Counter()
    for _ in range(4000):
        counts.update(clicks(truth("leak"), Visit("u", 0.05, []), "v1", SCORES, generator.random))
    assert counts[4] > 2 * counts[2] > counts[0]


def test_users_come_as_often_as_was_asked():
    assert len(list(visits(truth("aa"), SCHEMA, 50, 0, mean=1.0))) == 50
    assert len(list(visits(truth("aa"), SCHEMA, 2000, 0, mean=5.0))) / 2000 == pytest.approx(5.0, rel=0.1)
