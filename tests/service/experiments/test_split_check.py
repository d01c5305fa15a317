"""Sample ratio mismatch and the error guardrail, against published and worked vectors."""

import math

import numpy as np
import pytest

from service.experiments.split_check import (
    ERROR_STRENGTH,
    UNIT_STRENGTH,
    check_errors,
    check_units,
    combined,
    ln_bayes_factor,
    p_of,
)
from tests.service.experiments.hand_made import arm, epoch, hashes


@pytest.mark.parametrize(("counts", "expected"), [([2, 2, 1], -1.17111898), ([60, 63, 32], -4.18381398)])
def test_the_bayes_factor_is_that_of_ssrm(counts: list[int], expected: float):
    """Their prior there is Dirichlet(1, 1, 1), whatever the split."""
    prior, split = np.ones(3), np.array([0.4, 0.4, 0.2])
    uniform = ln_bayes_factor(counts, prior / 3, 3.0)
    found = uniform + (np.array(counts) * (np.log(prior / 3) - np.log(split))).sum()
    assert found == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(
    ("counts", "shares", "at_100", "at_10000"),
    [
        ([600, 400], [0.5, 0.5], 17.09894, 1.77079),
        ([9463, 7681], [0.5, 0.5], 89.668647, 58.03898),
        ([9200, 800], [0.9, 0.1], 21.224029, 11.158635),
        ([50500, 49500], [0.5, 0.5], 1.538263, 3.346588),
    ],
)
def test_the_bayes_factor_is_that_of_the_reference(counts, shares, at_100: float, at_10000: float):
    assert ln_bayes_factor(counts, shares, UNIT_STRENGTH) == pytest.approx(at_100, abs=1e-5)
    assert ln_bayes_factor(counts, shares, 10000.0) == pytest.approx(at_10000, abs=1e-5)


@pytest.mark.parametrize(
    ("counts", "strength", "p", "within"),
    [([600, 400], 100, 3.75e-8, 5e-11), ([50500, 49500], 100, 0.215, 5e-4), ([50500, 49500], 10000, 0.0352, 5e-5)],
)
def test_p_is_one_over_the_factor(counts: list[int], strength: float, p: float, within: float):
    assert p_of(float(ln_bayes_factor(counts, [0.5, 0.5], strength))) == pytest.approx(p, abs=within)


@pytest.mark.parametrize(
    ("counts", "p"), [([30, 12], 0.02916), ([30, 16], 0.00055), ([45, 14], 0.06454), ([90, 30], 0.00017)]
)
def test_errors_of_a_canary_are_judged_as_in_the_reference(counts: list[int], p: float):
    assert p_of(float(ln_bayes_factor(counts, [0.9, 0.1], ERROR_STRENGTH))) == pytest.approx(p, abs=5e-6)


def test_nothing_counted_says_nothing():
    assert ln_bayes_factor([0, 0], [0.5, 0.5], UNIT_STRENGTH) == pytest.approx(0)
    assert check_errors([], "v2", "v1").p == 1


def test_counts_of_many_experiments_are_judged_at_once():
    found = ln_bayes_factor([[600, 400], [50500, 49500]], [0.5, 0.5], UNIT_STRENGTH)
    assert found.tolist() == pytest.approx([17.09894, 1.538263], abs=1e-5)


def test_an_epoch_is_judged_by_its_distinct_units():
    found = check_units(epoch(arm("v1", 0.5, units=600), arm("v2", 0.5, units=400)))
    assert found.ln_factor == pytest.approx(17.09894, abs=1e-5)
    assert (found.counts, found.doubled, found.unweighted, found.enough) == ({"v1": 600, "v2": 400}, 0, (), True)


def test_an_arm_without_weight_is_not_a_degree_of_freedom():
    found = check_units(epoch(arm("v1", 0.5, units=600), arm("v2", 0.5, units=400), arm("v3", 0.0)))
    assert found.ln_factor == pytest.approx(17.09894, abs=1e-5)
    assert found.unweighted == ()


def test_traffic_in_an_arm_without_weight_is_named():
    found = check_units(epoch(arm("v1", 0.5, units=9), arm("v2", 0.5, units=9), arm("v3", 0.0, impressions=1)))
    assert found.unweighted == ("v3",)


def test_a_dead_arm_is_a_mismatch():
    assert p_of(check_units(epoch(arm("v1", 0.5, units=200), arm("v2", 0.5))).ln_factor) < 1e-6


def test_an_arm_that_was_never_counted_is_a_dead_arm():
    assert p_of(check_units(epoch(arm("v1", 0.5, units=200))).ln_factor) < 1e-6


def test_a_unit_in_two_arms_shows():
    found = check_units(epoch(arm("v1", 0.5, units=hashes(10)), arm("v2", 0.5, units=hashes(10, 9))))
    assert found.doubled == 1


def test_one_arm_alone_cannot_be_off_its_share():
    assert check_units(epoch(arm("v1", 1.0, units=500))).ln_factor is None


def test_few_units_are_not_enough_to_call_a_split_right():
    assert not check_units(epoch(arm("v1", 0.9, units=60), arm("v2", 0.1, units=7))).enough
    assert check_units(epoch(arm("v1", 0.9, units=72), arm("v2", 0.1, units=8))).enough


def test_one_chance_imbalance_seen_in_two_epochs_counts_once():
    once = float(ln_bayes_factor([1090, 910], [0.5, 0.5], UNIT_STRENGTH))
    assert once < combined([once, once]) + 0.2 < once + 0.2
    assert combined([once]) == pytest.approx(math.log(0.8 * math.exp(once) + 0.2))


def test_a_gross_fault_in_a_late_epoch_is_not_lost_among_the_good_ones():
    assert p_of(combined([-2.0] * 9 + [30.0])) < 1e-9


def test_the_weights_of_all_epochs_that_may_come_add_up_to_one():
    assert combined([0.0] * 1000) == pytest.approx(0, abs=1e-12)
    assert combined([-1e9] * 10) == pytest.approx(math.log(0.2 / 10), rel=1e-6)


def test_an_error_check_says_whose_errors_are_too_many():
    canary = check_errors([epoch(arm("v1", 0.9, errors=30), arm("v2", 0.1, errors=16))], "v2", "v1")
    stable = check_errors([epoch(arm("v1", 0.5, errors=60), arm("v2", 0.5, errors=10))], "v2", "v1")
    assert canary.high
    assert canary.p < 0.001
    assert not stable.high
    assert stable.p < 0.001
