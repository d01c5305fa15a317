"""How often verdicts are wrong and how soon they are right, over many simulated experiments, with the service's own
functions. Run with -s to see the counts."""

from collections.abc import Iterable
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from service.experiments.comparison import Comparison, click_rate, compare
from service.experiments.report import report
from service.experiments.settings import ReportSettings
from service.experiments.split_check import ERROR_STRENGTH, UNIT_STRENGTH, combined, ln_bayes_factor, p_of
from tests.service.experiments.hand_made import arm, epoch, evidence, hashes
from tests.service.experiments.simulated import MEAN_RATE, Run, new_users, returning_users, variance_of_a_user

SETTINGS = ReportSettings()


def compared(run: Run) -> Comparison:
    return compare(run.arm(0), run.arm(1), 1, SETTINGS)


def decided(found: Comparison) -> np.ndarray:
    """At which looks the state is better or worse."""
    return found.judged & ((found.lift.low > 0) | (found.lift.high < 0))


def show(what: str, hits: Iterable[bool]) -> int:
    """Prints a count with its exact 95 % interval."""
    seen = [bool(hit) for hit in hits]
    interval = stats.binomtest(sum(seen), len(seen)).proportion_ci()
    print(f"{what}: {sum(seen)} of {len(seen)} ({interval.low:.2%} to {interval.high:.2%})")
    return sum(seen)


def test_few_of_200_experiments_without_a_difference_are_ever_judged_at_100_looks():
    runs = (new_users(np.random.default_rng(seed), 20_000, 100) for seed in range(200))
    assert show("A/A, new users, false verdicts", (decided(compared(run)).any() for run in runs)) <= 10


def test_few_are_where_users_come_back_and_the_split_ramps():
    """2,000 users, 20 visits each; 10 %, 30 %, 50 % in the second arm."""
    runs = (returning_users(np.random.default_rng(seed), 2_000, 100, 20, [0.1, 0.3, 0.5]) for seed in range(200))
    assert show("A/A, returning users, ramp, false verdicts", (decided(compared(run)).any() for run in runs)) <= 10


def test_a_versions_own_interval_holds_its_true_rate_at_all_looks():
    missed = []
    for seed in range(200):
        clicks, shown = new_users(np.random.default_rng(seed), 20_000, 100).arm(0)
        found = click_rate(clicks, shown, shown.sum(axis=-1), SETTINGS)
        enough = clicks.sum(axis=(1, 2)) >= SETTINGS.least_clicks
        missed.append((enough & ((found.low > MEAN_RATE) | (found.high < MEAN_RATE))).any())
    assert show("rates outside of their interval at any look", missed) <= 10


def test_the_interval_at_the_end_holds_the_truth_where_users_come_back():
    """A variance that took each epoch's users for new ones would miss it far more often than one look in 20."""
    misses = []
    for seed in range(200):
        run = returning_users(np.random.default_rng(seed), 2_000, 10, 20, [0.3, 0.5])
        found = compared(run)
        error = (found.lift.high[-1] - found.lift.low[-1]) / 2 / 3.05
        misses.append(abs(found.lift.value[-1]) > 1.96 * error)
    assert show("fixed 95 % intervals that miss", misses) <= 20


def test_ten_percent_more_clicks_are_found_before_three_times_the_fixed_horizon():
    rng = np.random.default_rng(99)
    power = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    spread = variance_of_a_user(rng) + variance_of_a_user(rng, 0.1)
    users = 2 * power**2 * spread / (0.1 * MEAN_RATE) ** 2
    print(f"fixed horizon: {users:,.0f} users")
    found = [compared(new_users(np.random.default_rng(seed), round(3 * users), 100, lift=0.1)) for seed in range(50)]
    assert show("+10 % found", ((one.judged & (one.lift.low > 0)).any() for one in found)) >= 40
    assert show("+10 % taken for a loss", ((one.judged & (one.lift.high < 0)).any() for one in found)) == 0


def least_p(first: float, runs: int, users: int, step: int, seed: int) -> np.ndarray:
    """(runs,) the least p-value of any look, one every `step` users, where a unit falls to the first of two arms with
    probability `first` and the split says 50/50."""
    rng = np.random.default_rng(seed)
    ones = rng.binomial(step, first, (runs, users // step)).cumsum(axis=1)
    whole = np.arange(step, users + 1, step)
    factors = ln_bayes_factor(np.stack([ones, whole - ones], axis=-1), [0.5, 0.5], UNIT_STRENGTH)
    return np.array([p_of(combined([highest])) for highest in factors.max(axis=1)])


def test_a_right_split_is_hardly_ever_called_a_mismatch():
    found = least_p(0.5, runs=5_000, users=100_000, step=1_000, seed=3)
    show("right splits, warnings", found < SETTINGS.srm_warning)
    assert show("right splits, mismatches", found < SETTINGS.srm_mismatch) <= 5


def test_a_fault_of_52_to_48_is_found_within_15000_users():
    found = least_p(0.52, runs=400, users=15_000, step=100, seed=5)
    assert show("52/48, warnings", found < SETTINGS.srm_warning) >= 0.85 * 400
    assert show("52/48, mismatches", found < SETTINGS.srm_mismatch) >= 0.70 * 400


def test_users_who_come_back_in_20_epochs_do_not_make_a_mismatch_of_a_chance():
    """The worst case: every epoch sees the same units in the same arms. A product of the factors would accuse many."""
    rng = np.random.default_rng(7)
    ones = rng.binomial(2_000, 0.5, 2_000)
    factors = ln_bayes_factor(np.stack([ones, 2_000 - ones], axis=-1), [0.5, 0.5], UNIT_STRENGTH)
    together = [p_of(combined([factor] * 20)) for factor in factors]
    assert show("the same units in 20 epochs, warnings", (p < SETTINGS.srm_warning for p in together)) <= 20


def errors_until(rng: np.random.Generator, share: float, most: int) -> int | None:
    """After how many errors the guardrail trips, where each falls to the canary with probability `share`; the split
    says 10 %."""
    canary = (rng.random(most) < share).cumsum()
    whole = np.arange(1, most + 1)
    factors = ln_bayes_factor(np.stack([whole - canary, canary], axis=-1), [0.9, 0.1], ERROR_STRENGTH)
    tripped = (np.exp(-factors) < 0.05) & (canary > 0.1 * whole)
    return int(tripped.argmax()) + 1 if tripped.any() else None


def test_a_canary_with_three_times_the_errors_is_found_soon_and_a_healthy_one_is_left_alone():
    rng = np.random.default_rng(13)
    found = [errors_until(rng, 0.3 / 1.2, 500) for _ in range(500)]
    assert show("threefold errors found within 500", (one is not None for one in found)) >= 495
    median = float(np.median([one for one in found if one]))
    print(f"median errors until then: {median:.0f}")
    assert 35 <= median <= 60
    healthy = (errors_until(rng, 0.1, 1_000) is not None for _ in range(1_000))
    assert show("healthy canaries accused within 1,000 errors", healthy) <= 50


@pytest.mark.parametrize("lift", [0.0, 0.3])
def test_the_whole_report_says_what_the_comparison_says(lift: float):
    """The same runs, look by look, through evidence and report."""
    run = new_users(np.random.default_rng(11), 20_000, 40, lift=lift)
    found = compared(run)
    for look in range(40):
        arms = [
            arm(f"v{n + 1}", 0.5, run.clicks[look, n, 0], run.impressions[look, n, 0], hashes(count, n << 40))
            for n, count in enumerate(run.users[look])
        ]
        told = report(evidence(epoch(*arms)), settings=SETTINGS)
        state = told["verdict"]["state"]
        assert (state in ("better", "worse")) == decided(found)[look]
        assert told["versions"][1]["p"] == pytest.approx(found.p[look])
    assert state == ("better" if lift else "collecting")
