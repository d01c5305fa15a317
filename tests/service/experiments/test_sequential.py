"""The confidence sequence, against published and worked vectors."""

import math

import numpy as np
import pytest

from service.experiments.sequential import half_width, p_value, rho
from service.experiments.statistics import Estimate, lift


def estimate(value: float, variance: float) -> Estimate:
    return Estimate(np.asarray(value), np.asarray(variance))


def size(number: float) -> np.ndarray:
    return np.asarray(number, np.float64)


def proportions(clicks: int, shown: int, others: int, shown_too: int) -> Estimate:
    """The difference of two proportions, by the variance that knows no units."""
    a, b = clicks / shown, others / shown_too
    return estimate(b - a, a * (1 - a) / shown + b * (1 - b) / shown_too)


@pytest.mark.parametrize(("planned", "expected"), [(5000, 0.0398400668), (1000, 0.0890850975)])
def test_rho_is_that_of_the_reference(planned: float, expected: float):
    assert rho(0.05, planned) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    ("time", "multiplier"),
    [
        (0.02, 6.6944),
        (0.05, 4.7188),
        (0.1, 3.8551),
        (0.25, 3.2643),
        (0.5, 3.0836),
        (1, 3.0352),
        (2, 3.0615),
        (5, 3.1530),
        (10, 3.2417),
    ],
)
def test_only_the_part_of_the_planned_size_sets_the_width(time: float, multiplier: float):
    for planned in (100.0, 1e6):
        found = half_width(estimate(0, 1), size(time * planned), alpha=0.05, planned=planned)
        assert found == pytest.approx(multiplier, abs=5e-5)


@pytest.mark.parametrize(("alpha", "multiplier"), [(0.01, 3.5716), (0.001, 4.2058)])
def test_a_smaller_alpha_is_wider(alpha: float, multiplier: float):
    found = half_width(estimate(0, 1), size(7.0), alpha=alpha, planned=7.0)
    assert found == pytest.approx(multiplier, abs=5e-5)


def test_the_interval_of_a_lift_is_that_of_gbstats():
    a, b = 1396 / 3000, 2422 / 3461
    found = lift(estimate(a, a * (1 - a) / 3000), estimate(b, b * (1 - b) / 3461))
    half = half_width(found, size(6461), alpha=0.05, planned=5000)
    assert (found.value - half, found.value + half) == pytest.approx((0.40098, 0.60675), abs=1e-5)


def test_the_interval_of_a_lift_of_means_is_that_of_gbstats():
    def mean(total: float, squares: float, n: int) -> Estimate:
        return estimate(total / n, (squares - total**2 / n) / (n - 1) / n)

    found = lift(mean(1396.87, 52377.9767, 3000), mean(2422.7, 134698.29, 3461))
    half = half_width(found, size(6461), alpha=0.05, planned=1000)
    assert found.value == pytest.approx(0.50336, abs=1e-5)
    assert (found.value - half, found.value + half) == pytest.approx((-0.55844, 1.56516), abs=1e-5)
    assert p_value(found, size(6461), alpha=0.05, planned=1000) == 1


@pytest.mark.parametrize(
    ("counts", "planned", "half", "p"),
    [
        ((2500, 50000, 2750, 50000), 100000, 0.00428115, 0.01127874),
        ((2500, 50000, 2750, 50000), 5000, 0.00470663, 0.02455283),
        ((50, 1000, 80, 1000), 5000, 0.03437577, 0.12108228),
    ],
)
def test_click_rates_are_judged_as_in_the_reference(counts, planned: float, half: float, p: float):
    found, n = proportions(*counts), size(counts[1] + counts[3])
    assert half_width(found, n, alpha=0.05, planned=planned) == pytest.approx(half, abs=1e-8)
    assert p_value(found, n, alpha=0.05, planned=planned) == pytest.approx(p, abs=1e-8)


def test_it_is_the_mixture_of_johari_and_others_under_another_name():
    """rho^2 = tau^2 / V, for differences of pairs: .05 against .055, 50,000 pairs, tau^2 = 1e-4."""
    variance, pairs, tau_2 = 0.05 * 0.95 + 0.055 * 0.945, 50000, 1e-4
    planned = rho(0.05, 1.0) ** 2 * variance / tau_2
    found = p_value(estimate(0.005, variance / pairs), size(pairs), alpha=0.05, planned=planned)
    assert found == pytest.approx(0.015117069, abs=1e-9)
    assert 1 / found == pytest.approx(66.15039, abs=1e-5)


def test_p_falls_below_alpha_just_where_the_interval_leaves_zero():
    for alpha in (0.05, 0.025, 0.001):
        n = size(70_000)
        edge = half_width(estimate(0, 1), n, alpha=alpha, planned=1e5)
        assert p_value(estimate(float(edge), 1), n, alpha=alpha, planned=1e5) == pytest.approx(alpha, rel=1e-9)


def test_nothing_seen_is_nothing_known():
    found = p_value(estimate(math.nan, math.nan), size(0), alpha=0.05, planned=1e5)
    assert math.isnan(found)
    assert math.isnan(half_width(estimate(math.nan, math.nan), size(0), alpha=0.05, planned=1e5))
