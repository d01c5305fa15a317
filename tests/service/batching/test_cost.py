"""Cost and load: arithmetic alone."""

import random

import pytest

from service.batching.cost import DECAY, LEARNING, OUTLIER, Cost
from service.batching.entries import QueueFull
from service.batching.load import PAUSE, SHARE, STRETCH, Load


def learned(calls: list[tuple[int, float]]) -> Cost:
    cost = Cost()
    for rows, seconds in calls:
        cost.add(rows, seconds)
    return cost


def test_a_cost_is_known_after_enough_calls():
    assert not learned([(1, 1.0)] * (LEARNING - 1)).is_known
    assert learned([(1, 1.0)] * LEARNING).is_known


def test_a_line_is_found():
    draw = random.Random(1)
    cost = learned([(rows, 0.001 + 2e-6 * rows) for rows in (draw.randint(1, 500) for _ in range(100))])
    assert cost.predict(4096) == pytest.approx(0.001 + 2e-6 * 4096, rel=1e-6)
    assert cost.per_row == pytest.approx(2e-6, rel=1e-6)


def test_calls_of_one_size_are_half_fixed_and_half_in_proportion():
    assert learned([(100, 0.01)] * 50).predict(200) == pytest.approx(0.015)


def test_neither_part_is_ever_negative():
    for calls in ([(1, 1.0), (10, 0.9)], [(1, 0.4), (10, 1.0)]):
        cost = learned(calls * 20)
        assert cost.fixed >= 0
        assert cost.per_row >= 0


def test_what_was_learned_fades():
    cost = learned([(1, 0.2)] * 50 + [(1, 0.1)] * 200)
    assert cost.predict(1) == pytest.approx(0.1, rel=DECAY**200 + 1e-3)


def test_one_call_that_was_held_up_teaches_little():
    cost = learned([(1, 0.001)] * 100)
    cost.add(1, 1000.0)
    assert cost.predict(1) < 0.001 * (1 + 2 * OUTLIER * (1 - DECAY))


def test_a_call_far_quicker_than_all_before_starts_afresh():
    assert learned([(1, 10.0)] * 5 + [(1, 0.001)]).predict(1) == pytest.approx(0.001)


def test_numbers_that_cannot_be_teach_nothing():
    cost = learned([(1, 0.001)] * LEARNING)
    for rows, seconds in ((0, 1.0), (1, 0.0), (1, -1.0), (1, float("inf")), (1, float("nan"))):
        cost.add(rows, seconds)
    assert cost.predict(1) == pytest.approx(0.001)


def test_work_is_admitted_as_long_as_it_fits_the_share_of_the_budget():
    load = Load(1.0, clock=lambda: 0.0)
    load.check(5.0)  # nothing is at hand: room for anything
    load.take(SHARE - 0.2)
    load.check(0.1)
    with pytest.raises(QueueFull) as refused:
        load.check(0.3)
    assert refused.value.seconds == pytest.approx(SHARE - 0.2)


def test_the_time_that_a_request_has_been_here_counts():
    load = Load(1.0, clock=lambda: 0.0)
    load.take(0.1)
    load.check(0.1, waited=0.2)
    with pytest.raises(QueueFull):
        load.check(0.1, waited=SHARE)


def test_work_that_takes_longer_than_expected_stretches_what_is_at_hand():
    now = 0.0
    load = Load(10.0, clock=lambda: now)
    for _ in range(50):
        load.take(0.01)
        now += 0.03
        load.finish(1, 0.01)
    assert load.stretch == pytest.approx(3.0)
    load.take(0.5)
    assert load.drain_seconds == pytest.approx(1.5)


def test_pauses_between_work_do_not_stretch_and_nothing_stretches_without_end():
    now = 0.0
    load = Load(10.0, clock=lambda: now)
    for _ in range(20):
        load.take(0.01)
        now += 0.01
        load.finish(1, 0.01)
        now += 100.0
    assert load.stretch == pytest.approx(1.0)
    for _ in range(200):
        load.take(1e-4)
        now += 10 * PAUSE
        load.finish(1, 1e-4)
    assert load.stretch <= STRETCH[1]


def test_an_overload_that_is_over_is_forgotten_within_a_second():
    now = 0.0
    load = Load(10.0, clock=lambda: now)
    for _ in range(100):
        load.take(1e-4)
        now += 0.002
        load.finish(1, 1e-4)
    assert load.stretch == pytest.approx(20.0)
    for _ in range(100):  # a tenth of the time under work
        load.take(1e-3)
        now += 1e-3
        load.finish(1, 1e-3)
        now += 9e-3
    assert load.stretch < 1.1


def test_a_turn_of_the_loop_before_a_request_is_read_counts_up_to_a_half():
    now = 0.0
    load = Load(1.0, clock=lambda: now)
    load.take(0.1)
    now += 0.1
    load.finish(1, 0.1)
    load.take(0.3)
    load.check(0.09)
    with pytest.raises(QueueFull):
        load.check(0.11)
    load.finish(1, 0.3)
    now += 100.0
    load.take(0.05)
    now += 5.0
    load.finish(1, 0.0)
    load.take(0.0)
    load.check(0.0)


def test_what_a_running_batch_has_done_is_no_longer_at_hand():
    now = 0.0
    load = Load(10.0, clock=lambda: now)
    load.take(1.0)
    load.begin(1, 1.0)
    now = 0.4
    assert load.drain_seconds == pytest.approx(0.6)
    now = 5.0
    assert load.drain_seconds == 0.0
    load.end(1)
    load.drop(1, 1.0)
    load.check(100.0)
