"""Online AUC and calibration, against worked values."""

import numpy as np
import pytest

from service.experiments.quality import auc_gain, calibration, online_auc, ranking


def binned(clicked: list[int], not_clicked: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Scores that are the number of their bin."""
    bins = np.arange(len(clicked), dtype=float)
    scores = np.concatenate([np.repeat(bins, clicked), np.repeat(bins, not_clicked)])
    return scores, np.arange(len(scores)) < sum(clicked)


def some(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = rng.beta(2, 8, count)
    return scores, rng.random(count) < scores


def alone(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint64)


def test_the_auc_of_the_histograms_is_that_of_the_reference():
    assert ranking(*binned([1, 2, 7], [6, 3, 1])).auc == pytest.approx(0.845, abs=1e-12)


def test_the_auc_counts_pairs_in_order():
    scores, clicked = some(1, 200)
    pairs = scores[clicked][:, None] - scores[~clicked][None, :]
    assert ranking(scores, clicked).auc == pytest.approx((pairs > 0).mean(), abs=1e-12)


def test_the_variance_of_an_auc_is_delongs_where_each_item_is_a_unit():
    """Var = S10/P + S01/N of the placements; clusters differ only by how their degrees of freedom are counted."""
    scores, clicked = some(2, 4000)
    positives, negatives = scores[clicked], scores[~clicked]
    first = np.array([(negatives < score).mean() for score in positives])
    second = np.array([(positives > score).mean() for score in negatives])
    expected = first.var(ddof=1) / len(positives) + second.var(ddof=1) / len(negatives)
    assert online_auc(scores, clicked, alone(4000)).variance == pytest.approx(expected, rel=2e-3)


def test_items_repeated_within_their_unit_are_no_new_evidence():
    scores, clicked = some(3, 500)
    twice = [np.concatenate([one, one]) for one in (scores, clicked, alone(500))]
    once, again = online_auc(scores, clicked, alone(500)), online_auc(*twice)
    assert again.value == pytest.approx(once.value)
    assert again.variance == pytest.approx(once.variance)


def test_the_interval_of_an_auc_holds_what_other_samples_give():
    found = [online_auc(*some(seed, 800), alone(800)) for seed in range(200)]
    values, errors = np.array([one.value for one in found]), np.sqrt([one.variance for one in found])
    assert values.std() == pytest.approx(errors.mean(), rel=0.15)


def test_calibration_is_clicks_predicted_by_clicks_seen():
    found = calibration(np.array([0.2, 0.4, 0.6]), np.array([False, False, True]), alone(3))
    assert found.value == pytest.approx(1.2)


def test_a_gain_of_a_model_over_itself_is_nothing_for_sure():
    scores, clicked = some(4, 300)
    found = auc_gain(scores, scores * 2, clicked, alone(300))
    assert (found.value, found.variance) == pytest.approx((0, 0))


def test_a_paired_gain_is_surer_than_two_aucs_apart():
    scores, clicked = some(5, 3000)
    others = scores + np.random.default_rng(6).normal(0, 0.05, 3000)
    paired = auc_gain(scores, others, clicked, alone(3000))
    assert paired.value < 0
    assert paired.variance < online_auc(scores, clicked, alone(3000)).variance


@pytest.mark.parametrize("clicked", [[True, True], [False, False]])
def test_one_class_alone_has_no_auc(clicked: list[bool]):
    found = online_auc(np.array([0.1, 0.2]), np.array(clicked), alone(2))
    assert np.isnan(found.value)
    assert np.isnan(found.variance)


def test_no_items_have_neither():
    nothing = np.zeros(0), np.zeros(0, bool), alone(0)
    assert np.isnan(online_auc(*nothing).value)
    assert np.isnan(calibration(*nothing).value)


def test_one_unit_alone_has_no_interval():
    assert np.isnan(calibration(np.array([0.2, 0.4]), np.array([True, False]), np.zeros(2, np.uint64)).variance)
