"""A version that saw the future is suspected while it shadows; its clean twin is not."""

import numpy as np
import pytest

from service.experiments.evidence import Joined
from service.experiments.leak import Looked, Offline, offline_of, suspicion
from service.experiments.paired import paired
from service.experiments.quality import ranking


def answers(seed, noise, scale=1.0, users=800, items=10):
    """Joined answers of a right version, shadowed by one whose logits are off by so much noise."""
    generator = np.random.default_rng(seed)
    units = np.repeat(np.arange(users, dtype=np.uint64), items)
    logit = generator.normal(-2.2, 1.0, users * items) + np.repeat(generator.normal(0, 0.3, users), items)
    clicked = generator.random(len(logit)) < 1 / (1 + np.exp(-logit))
    shadow = 1 / (1 + np.exp(-(logit + generator.normal(0, noise, len(logit)) - noise**2 / 4)))
    return Joined("v1", 1 / (1 + np.exp(-logit)), clicked, units, "v2", np.minimum(1.0, scale * shadow))


NOTHING = Looked()


def judged(joined, offline, incumbent=None, looked=NOTHING):
    incumbent = incumbent or Offline(ranking(joined.scores, joined.clicked).auc)
    return suspicion(Offline(offline), incumbent, paired(joined), looked)


def test_a_planted_leak_is_suspected_in_each_of_20_runs_and_its_clean_twin_in_none():
    leaked = [judged(answers(seed, noise=1.5), offline=0.92)["state"] for seed in range(20)]
    clean = []
    for seed in range(20):
        joined = answers(seed + 100, noise=0.2)
        clean.append(judged(joined, offline=ranking(joined.shadow, joined.clicked).auc)["state"])
    assert leaked == ["suspected"] * 20
    assert clean == ["none"] * 20


def test_the_reason_names_both_versions_figures():
    (reason,) = judged(answers(1, noise=1.5), offline=0.92)["reasons"][:1]
    assert "0.920 offline" in reason
    assert "'v1'" in reason


def test_an_auc_that_falls_online_for_both_alike_is_no_leak():
    joined = answers(2, noise=0.0)
    falls = Offline(ranking(joined.scores, joined.clicked).auc + 0.1)
    assert judged(joined, offline=falls.auc, incumbent=falls)["state"] == "none"


def test_scores_far_too_high_are_suspected():
    found = judged(answers(3, noise=0.0, scale=2.0), offline=None)
    assert "times the clicks" in found["reasons"][0]


def test_few_clicks_say_nothing():
    assert judged(answers(4, noise=3.0, users=8), offline=0.99)["state"] == "collecting"


def test_without_a_joined_sample_nothing_is_said_of_auc():
    assert suspicion(Offline(0.99), Offline(0.5), None, Looked()) == {"state": "collecting", "reasons": []}


@pytest.mark.parametrize(("served", "state"), [(500, "suspected"), (20, "collecting")])
def test_values_missing_when_serving_and_not_offline_are_suspected_before_any_click(served, state):
    candidate = Offline(0.9, {"clicks_tomorrow": 0.0})
    assert suspicion(candidate, Offline(0.8), None, Looked(500, {"clicks_tomorrow": served}))["state"] == state


def test_values_missing_as_often_as_offline_are_not():
    looked = Looked(500, {"age": 300})
    assert suspicion(Offline(None, {"age": 0.6}), Offline(), None, looked)["reasons"] == []


def test_new_users_are_unknown_without_suspicion():
    looked = Looked(500, {}, {"user_id": 300})
    assert suspicion(Offline(None, {}, {"user_id": 0.5}), Offline(), None, looked)["reasons"] == []


def test_a_manifest_that_says_nothing_is_held_against_nobody():
    assert offline_of({}) == Offline()
    assert suspicion(offline_of({}), offline_of({}), None, Looked(500, {"age": 500}))["reasons"] == []


def test_the_test_parts_auc_and_the_rates_are_read_from_a_manifest():
    manifest = {
        "metrics": {"valid": {"auc": 0.7}, "test": {"auc": 0.6}},
        "values": {"rows": 200, "missing": {"age": 20}, "unknown": {"age": 0}},
    }
    assert offline_of(manifest) == Offline(0.6, {"age": 0.1}, {"age": 0.0})
