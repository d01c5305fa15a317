"""Cost and load: arithmetic alone."""

import random

import pytest

from service.batching.cost import DECAY, FEWEST, LEARNING, MOST_OVERHEAD, OUTLIER, SAMPLE_SECONDS, Cost, Load


def learned(calls: list[tuple[int, float]]) -> Cost:
    cost = Cost()
    for rows, seconds in calls:
        cost.add(rows, seconds)
    return cost


def test_nothing_is_predicted_before_enough_calls_were_seen():
    assert learned([(1, 1.0)] * (LEARNING - 1)).predict(1) is None
    assert learned([(1, 1.0)] * LEARNING).predict(1) == pytest.approx(1.0)


def test_a_line_is_found():
    draw = random.Random(1)
    calls = [(rows, 0.001 + 2e-6 * rows) for rows in (draw.randint(1, 500) for _ in range(100))]
    cost = learned(calls)
    assert cost.predict(4096) == pytest.approx(0.001 + 2e-6 * 4096, rel=1e-6)
    assert cost.per_row == pytest.approx(2e-6, rel=1e-6)


def test_calls_of_one_size_alone_predict_in_proportion():
    cost = learned([(100, 0.01)] * 50)
    assert cost.predict(200) == pytest.approx(0.02)


def test_a_slope_is_never_negative_nor_steeper_than_the_mean():
    assert learned([(1, 1.0), (10, 0.1)] * 20).per_row >= 0
    cost = learned([(1, 0.0), (10, 1.0)] * 20)
    assert 0 <= cost.predict(0) <= cost.predict(1)


def test_what_was_learned_fades():
    cost = learned([(1, 1.0)] * 50 + [(1, 0.1)] * 100)
    assert cost.predict(1) == pytest.approx(0.1 + 0.9 * DECAY**100, rel=0.01)


def test_one_call_that_was_held_up_teaches_little():
    cost = learned([(1, 0.001)] * 100)
    cost.add(1, 1000.0)
    assert cost.predict(1) < 0.001 * (1 + OUTLIER * (1 - DECAY))


def test_the_first_calls_which_are_the_slowest_do_not_count():
    assert learned([(1, 10.0)] * 2 + [(1, 0.001)] * 10).predict(1) == pytest.approx(0.001)


def test_load_comes_back_to_nothing():
    load = Load()
    for _ in range(1000):
        load.take(0.1)
    for _ in range(1000):
        load.done(0.1)
    assert load.seconds == 0


def test_overhead_is_the_loops_time_beside_the_calls_and_quiet_times_do_not_count():
    cpu, now = 0.0, 0.0
    load = Load(cpu=lambda: cpu, clock=lambda: now)
    for _ in range(200):
        cpu, now = cpu + 0.003, now + SAMPLE_SECONDS / 2
        load.answered(10, 0.002)
    assert load.overhead == pytest.approx(1e-4, rel=1e-3)
    cpu, now = cpu + 5.0, now + SAMPLE_SECONDS * 2
    load.answered(FEWEST // 2, 0.0)
    assert load.overhead == pytest.approx(1e-4, rel=1e-3)
    cpu, now = cpu + 5.0, now + SAMPLE_SECONDS
    load.answered(FEWEST, 0.0)
    assert load.overhead < MOST_OVERHEAD
