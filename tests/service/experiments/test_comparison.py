"""One version against the default over epochs: what changes a comparison, and what must not."""

import numpy as np
import pytest

from service.experiments.comparison import Comparison, click_rate, compare
from service.experiments.settings import ReportSettings
from tests.service.experiments.hand_made import drawn

SETTINGS = ReportSettings()
Arm = tuple[np.ndarray, np.ndarray]


def arms(seed: int, *exposures: tuple[int, int]) -> tuple[Arm, Arm]:
    """(clicks, exposures) (E, K) of two arms at 5 % and 6 %, so many exposures of each an epoch."""
    rng = np.random.default_rng(seed)
    drawn_arms = [[drawn(rng, rate, epoch[at]) for epoch in exposures] for at, rate in enumerate((0.05, 0.06))]
    first, second = ((np.stack([one[0] for one in arm]), np.stack([one[1] for one in arm])) for arm in drawn_arms)
    return first, second


def compared(base: Arm, other: Arm, challengers: int = 1) -> Comparison:
    return compare(base, other, challengers, SETTINGS)


def numbers(found: Comparison) -> list[float]:
    return [float(one) for one in (*found.lift, found.p, found.time, found.clicks)]


def test_the_order_of_epochs_does_not_matter():
    base, other = arms(1, (9000, 1000), (5000, 5000), (2000, 8000))
    turned = [tuple(counts[::-1] for counts in arm) for arm in (base, other)]
    assert numbers(compared(*turned)) == pytest.approx(numbers(compared(base, other)))


def test_an_epoch_of_one_arm_alone_changes_nothing():
    base, other = arms(2, (9000, 1000), (5000, 5000))
    more = [
        tuple(np.concatenate([counts, 9 * has * counts[:1]]) for counts in arm) for arm, has in ((base, 1), (other, 0))
    ]
    assert numbers(compared(*more)) == pytest.approx(numbers(compared(base, other)))


def test_the_same_impressions_of_the_same_users_twice_are_no_narrower():
    base, other = arms(3, (20000, 20000))
    once, twice = compared(base, other), compared(*[tuple(2 * counts for counts in arm) for arm in (base, other)])
    widths = [float(one.lift.high - one.lift.low) for one in (once, twice)]
    # Only the clock has moved on: the multiplier shrinks a little towards the planned size.
    assert widths[1] > 0.9 * widths[0]


def test_the_clock_of_an_unequal_split_runs_by_what_it_says():
    equal, unequal = compared(*arms(4, (5000, 5000))), compared(*arms(4, (9000, 1000)))
    assert equal.time == pytest.approx(0.1)
    assert unequal.time == pytest.approx(0.036)


def test_many_experiments_at_once_are_each_compared_alone():
    pairs = [arms(seed, (9000, 1000), (5000, 5000)) for seed in (5, 6)]
    stacked = [tuple(np.stack([pair[at][which] for pair in pairs]) for which in (0, 1)) for at in (0, 1)]
    together = compared(*stacked)
    for number, pair in enumerate(pairs):
        alone = compared(*pair)
        assert together.lift.low[number] == pytest.approx(float(alone.lift.low))
        assert together.p[number] == pytest.approx(float(alone.p))


@pytest.mark.parametrize("challengers", [1, 2, 5])
def test_p_and_interval_agree_however_many_challengers_there_are(challengers: int):
    for seed in range(30):
        found = compared(*arms(seed, (30_000, 30_000)), challengers)
        assert (found.p < SETTINGS.alpha) == (found.lift.low > 0 or found.lift.high < 0)


def test_clicks_that_no_arm_had_are_no_interval():
    base, other = arms(7, (5000, 5000))
    found = compared((0 * base[0], base[1]), (0 * other[0], other[1]))
    assert not found.judged
    assert found.p == 1
    assert np.isnan(found.lift.low)


def test_a_rate_of_several_epochs_is_that_of_all_traffic():
    clicks = np.array([[10.0, 0, 0, 0], [40.0, 0, 0, 0]])
    shown = np.full((2, 4), 25.0)
    found = click_rate(clicks, shown, np.array([300.0, 100.0]), SETTINGS)
    assert found.value == pytest.approx(0.75 * 0.1 + 0.25 * 0.4)


def test_a_rate_is_never_below_nothing():
    clicks, shown = drawn(np.random.default_rng(8), 0.01, 300)
    found = click_rate(clicks[None], shown[None], np.array([300]), SETTINGS)
    assert found.low == 0
    assert found.high > found.value
