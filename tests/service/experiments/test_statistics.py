"""Ratios, lifts and their combination, against the published fixtures."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from service.experiments.statistics import Estimate, lift, overlap, ratio, standardised

A = np.array([0, 1, 2, 0, 3, 1]), np.array([10, 12, 20, 5, 30, 8])
B = np.array([1, 1, 4, 0, 3, 2]), np.array([9, 14, 22, 6, 28, 10])


def estimate(value: float, variance: float) -> Estimate:
    return Estimate(np.asarray(value), np.asarray(variance))


def from_sums(n: int, clicks: float, clicks_2: float, exposures: float, exposures_2: float, both: float) -> Estimate:
    """Another way to the same formula, from the sums that a warehouse would hold."""
    rate = clicks / exposures
    cc, mm = (clicks_2 - clicks**2 / n) / (n - 1), (exposures_2 - exposures**2 / n) / (n - 1)
    cm = (both - clicks * exposures / n) / (n - 1)
    return estimate(rate, (cc - 2 * rate * cm + rate**2 * mm) / (n * (exposures / n) ** 2))


@pytest.mark.parametrize(
    ("arm", "rate", "variance"), [(A, 0.0823529412, 2.273995762e-4), (B, 0.1235955056, 5.351801189e-4)]
)
def test_the_variance_of_a_ratio_is_that_of_the_fixture(arm, rate: float, variance: float):
    found = ratio(*arm)
    assert found.value == pytest.approx(rate, abs=1e-10)
    assert found.variance == pytest.approx(variance, rel=1e-9)


def test_the_difference_of_two_ratios_is_that_of_the_fixture():
    a, b = ratio(*A), ratio(*B)
    difference, error = b.value - a.value, math.sqrt(a.variance + b.variance)
    assert difference == pytest.approx(0.0412425644, abs=1e-10)
    assert error == pytest.approx(0.0276148456, abs=1e-10)
    assert difference / error == pytest.approx(1.49349249, abs=1e-8)
    assert math.erfc(difference / error / math.sqrt(2)) == pytest.approx(0.13530832, abs=1e-8)


@pytest.mark.parametrize(("arm", "sums"), [(A, (7, 15, 85, 1633, 150)), (B, (11, 31, 89, 1681, 215))])
def test_residuals_give_what_the_five_sums_give(arm, sums: tuple[float, ...]):
    expected = from_sums(6, *sums)
    assert ratio(*arm).value == pytest.approx(expected.value, rel=1e-12)
    assert ratio(*arm).variance == pytest.approx(expected.variance, rel=1e-12)


def test_the_lift_of_ratios_is_that_of_gbstats():
    found = lift(from_sums(100, 270, 848.79, 510, 810, -900), from_sums(120, 300, 869, 500, 800, -905))
    assert found.value == pytest.approx(0.133333333, abs=1e-9)
    assert NormalDist().cdf(found.value / math.sqrt(found.variance)) == pytest.approx(0.694926359, abs=1e-9)


def test_the_lift_of_proportions_is_that_of_gbstats():
    a, b = 1396 / 3000, 2422 / 3461
    found = lift(estimate(a, a * (1 - a) / 3000), estimate(b, b * (1 - b) / 3461))
    assert found.value == pytest.approx(0.50386, abs=1e-5)
    assert math.sqrt(found.variance) == pytest.approx(0.03386, abs=1e-5)


def test_simpsons_ramp_is_not_fallen_for():
    """Kohavi and Crook: the treatment wins on both days, and loses when the days are pooled."""
    control, treatment = np.array([20000, 5000]), np.array([230, 6000])
    shown, shown_2 = np.array([990000, 500000]), np.array([10000, 500000])
    assert control.sum() / shown.sum() > treatment.sum() / shown_2.sum()
    for weights in (overlap(shown, shown_2), shown + shown_2):
        a = standardised(control[:, None] / 4 * np.ones(4), shown[:, None] / 4 * np.ones(4), weights)
        b = standardised(treatment[:, None] / 4 * np.ones(4), shown_2[:, None] / 4 * np.ones(4), weights)
        assert b.value > a.value


def test_rates_weighed_by_all_traffic_are_snips():
    """The same table with logged propensities .99/.01 and .5/.5."""
    weights = np.array([1000000, 1000000])
    control = standardised(np.array([[20000, 0], [5000, 0]]), np.array([[990000, 0], [500000, 0]]), weights)
    treatment = standardised(np.array([[230, 0], [6000, 0]]), np.array([[10000, 0], [500000, 0]]), weights)
    assert control.value == pytest.approx(0.0151010101, abs=1e-10)
    assert treatment.value == pytest.approx(0.0175, abs=1e-12)


def test_one_epoch_is_the_plain_ratio():
    clicks, exposures = A
    found = standardised(clicks[None], exposures[None], np.array([123.0]))
    assert found.value == pytest.approx(ratio(*A).value)
    assert found.variance == pytest.approx(ratio(*A).variance)


def test_users_who_come_back_in_the_next_epoch_are_no_new_evidence():
    clicks, exposures = np.stack([A[0], A[0]]), np.stack([A[1], A[1]])
    found = standardised(clicks, exposures, exposures.sum(axis=-1))
    assert found.variance == pytest.approx(ratio(*A).variance)


def test_an_epoch_that_one_arm_was_not_in_does_not_count():
    clicks, exposures = np.stack([A[0], B[0]]), np.stack([A[1], B[1]])
    weights = overlap(np.array([85, 89]), np.array([0, 50]))
    assert standardised(clicks, exposures, weights).value == pytest.approx(ratio(*B).value)


def test_without_exposures_there_is_no_rate():
    found = ratio(np.zeros(4), np.zeros(4))
    assert np.isnan(found.value)
    assert np.isnan(lift(found, found).variance)


def test_many_tables_at_once_are_each_judged_alone():
    clicks, exposures = np.stack([A[0], B[0]]), np.stack([A[1], B[1]])
    found = ratio(clicks, exposures)
    assert found.value.tolist() == pytest.approx([ratio(*A).value, ratio(*B).value])
    assert found.variance.tolist() == pytest.approx([ratio(*A).variance, ratio(*B).variance])
