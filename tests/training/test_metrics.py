import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from training.metrics import auc, ece, evaluate, gauc


@pytest.mark.parametrize("seed", range(5))
def test_auc_and_log_loss_are_scikit_learns_ties_included(seed: int) -> None:
    random = np.random.default_rng(seed)
    labels = (random.random(500) < 0.3).astype(float)
    scores = np.round(random.random(500), 1).clip(0.05, 0.95)
    found = evaluate(labels, scores, None)
    assert found["auc"] == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert found["logloss"] == pytest.approx(log_loss(labels, scores), abs=1e-9)


def test_gauc_weighs_units_by_rows_and_leaves_out_those_of_one_class() -> None:
    # Unit 0: AUC 1 over 2 rows; unit 1: AUC 0 over 3 rows (its positive is last); unit 2 has one class; -1 is no unit.
    units = np.array([0, 0, 1, 1, 1, 2, 2, -1])
    labels = np.array([1, 0, 1, 0, 0, 1, 1, 1])
    scores = np.array([0.9, 0.1, 0.1, 0.5, 0.6, 0.3, 0.2, 0.0])
    assert gauc(labels, scores, units) == pytest.approx((1 * 2 + 0 * 3) / 5)


def test_normalised_entropy_of_the_base_rate_is_one_and_calibration_is_one() -> None:
    labels = np.array([1, 0, 0, 0])
    found = evaluate(labels, np.full(4, 0.25), None)
    assert found["ne"] == pytest.approx(1.0)
    assert found["calibration"] == pytest.approx(1.0)
    assert found["auc"] == 0.5


@pytest.mark.parametrize("labels", [np.zeros(3), np.ones(3)])
def test_one_class_leaves_the_auc_undefined_with_a_reason(labels: np.ndarray) -> None:
    assert auc(labels, np.array([0.1, 0.2, 0.3])) is None
    found = evaluate(labels, np.array([0.1, 0.2, 0.3]), None)
    assert found["auc"] is None
    assert "one class only" in found["reason"]


def test_no_rows_are_no_metrics() -> None:
    assert evaluate(np.zeros(0), np.zeros(0), None)["reason"] == "no rows"


def test_expected_calibration_error_is_the_mean_distance_of_groups() -> None:
    labels = np.array([0.0] * 50 + [1.0] * 50)
    assert ece(labels, np.array([0.1] * 50 + [0.7] * 50)) == pytest.approx((0.1 + 0.3) / 2)
    assert ece(labels, np.full(100, 0.5)) == pytest.approx(0.0)
