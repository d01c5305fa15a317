"""Paired figures of the version that answered and its shadow."""

import numpy as np
import pytest

from service.experiments.evidence import Joined
from service.experiments.paired import paired, told


def joined(scores, shadow, clicked, units=None):
    units = np.arange(len(scores), dtype=np.uint64) if units is None else np.array(units, np.uint64)
    return Joined("v1", np.array(scores), np.array(clicked, bool), units, "v2", np.array(shadow))


def test_the_same_scores_differ_by_nothing_and_surely():
    found = paired(joined([0.1, 0.4, 0.8, 0.3], [0.1, 0.4, 0.8, 0.3], [0, 0, 1, 1]))
    assert (found.auc_gain, found.logloss_gain) == ((0, 0), (0, 0))


def test_items_without_a_shadow_score_are_left_out():
    found = paired(joined([0.1, 0.4, 0.8], [0.2, np.nan, 0.7], [0, 1, 1]))
    assert (found.items, found.clicks) == (2, 1)


def test_without_any_shadow_score_there_is_nothing():
    assert paired(joined([0.1, 0.4], [np.nan, np.nan], [0, 1])) is None
    assert paired(Joined("v1", np.array([0.1]), np.array([True]), np.array([1], np.uint64))) is None


def test_the_log_loss_difference_is_that_of_the_rows():
    found = paired(joined([0.5, 0.5], [0.25, 0.75], [0, 1]))
    assert found.logloss_gain.value == pytest.approx(np.log(0.5) - np.log(0.75))


def test_units_that_repeat_widen_the_interval():
    generator = np.random.default_rng(5)
    first, second = generator.random((2, 300))
    clicked = generator.random(300) < 0.3
    alone = paired(joined(first, second, clicked))
    rows = [np.repeat(values, 4) for values in (first, second, clicked)]
    together = paired(joined(*rows, units=np.repeat(np.arange(300), 4)))
    assert together.logloss_gain == pytest.approx(alone.logloss_gain)
    assert together.auc_gain == pytest.approx(alone.auc_gain)


def test_one_class_alone_has_no_auc_and_json_no_nan():
    found = told(paired(joined([0.1, 0.2], [0.3, 0.4], [0, 0])))
    assert (found["auc"], found["auc_gain"], found["auc_gain_interval"]) == (None, None, None)
