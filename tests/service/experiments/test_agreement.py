"""How far two versions agree on a request: values worked by hand."""

import numpy as np
import pytest

from service.experiments.agreement import Sums, agreement, means, overlap, rank_correlation, ranks


def scores(*values):
    return np.array(values, np.float32)


def test_equal_scores_share_the_mean_of_their_ranks():
    assert ranks(scores(0.5, 0.1, 0.5, 0.2)).tolist() == [0.5, 3.0, 0.5, 2.0]


def test_the_same_order_correlates_fully_whatever_the_level():
    assert rank_correlation(scores(0.1, 0.2, 0.3), scores(0.5, 0.8, 0.81)) == pytest.approx(1.0)


def test_the_opposite_order_is_minus_one():
    assert rank_correlation(scores(0.1, 0.2, 0.3), scores(0.3, 0.2, 0.1)) == pytest.approx(-1.0)


def test_one_swap_of_three_is_a_half():
    """1 - 6 * (1 + 1) / (3 * 8)."""
    assert rank_correlation(scores(1, 2, 3), scores(2, 1, 3)) == pytest.approx(0.5)


def test_a_constant_version_has_no_rank_correlation():
    assert rank_correlation(scores(0.5, 0.5), scores(0.1, 0.2)) is None


def test_half_of_the_best_two_are_shared():
    assert overlap(scores(4, 3, 2, 1), scores(4, 1, 3, 2), 2) == 0.5


def test_a_request_of_one_row_has_a_gap_and_no_order():
    found = agreement(scores(0.2), scores(0.5))
    assert (found.requests, found.ranked, found.topped) == (1, 0, 0)
    assert found.gap == pytest.approx(0.3)


def test_the_gap_has_a_sign_and_the_distance_has_none():
    found = agreement(scores(0.2, 0.6), scores(0.4, 0.4))
    assert found.gap == pytest.approx(0.0, abs=1e-6)
    assert found.distance == pytest.approx(0.2)


def test_sums_of_parts_are_the_sums_of_the_whole():
    generator = np.random.default_rng(3)
    parts = [agreement(*generator.random((2, 20), np.float32)) for _ in range(4)]
    left, right = parts[0].plus(parts[1]), parts[2].plus(parts[3])
    assert left.plus(right) == pytest.approx(parts[0].plus(parts[1]).plus(parts[2]).plus(parts[3]))


def test_means_have_the_normal_interval_over_requests():
    generator = np.random.default_rng(4)
    parts = [agreement(*generator.random((2, 20), np.float32)) for _ in range(50)]
    total = Sums()
    for part in parts:
        total = total.plus(part)
    gaps = np.array([part.gap for part in parts])
    half = 1.959964 * gaps.std(ddof=1) / np.sqrt(50)
    found = means(total)
    assert found["gap"] == pytest.approx(gaps.mean())
    assert found["gap_interval"] == pytest.approx([gaps.mean() - half, gaps.mean() + half])


def test_nothing_seen_is_none_and_no_number():
    assert means(Sums())["rank_correlation"] is None
