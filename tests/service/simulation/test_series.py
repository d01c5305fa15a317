"""How often a verdict came in many simulated experiments."""

import pytest
from scipy import stats

from service.simulation.series import course, exact_interval, tally


def report(verdict="collecting", srm="ok", leak=None):
    shadow = None if leak is None else {"leak": {"state": leak}}
    return {"verdict": {"state": verdict}, "srm": {"state": srm}, "shadow": shadow}


def test_what_was_said_at_any_look_counts_even_if_it_was_taken_back():
    found = course([report(), report("better", "warning", "suspected"), report("no_difference")])
    assert found.verdicts == {"collecting", "better", "no_difference"}
    assert (found.splits, found.leaks, found.looks) == ({"ok", "warning"}, {"suspected"}, 3)


def test_every_count_stands_with_its_interval():
    lines = list(tally([course([report("better")]), *(course([report()]) for _ in range(19))]))
    assert lines[:2] == ["20 experiments, each looked at 1 to 1 times", "  ever better: 1 of 20 (0.1% to 24.9%)"]
    assert "  ever broken: 0 of 20 (0.0% to 16.8%)" in lines


@pytest.mark.parametrize(("hits", "trials"), [(0, 20), (1, 20), (20, 20), (7, 200), (199, 200), (0, 5000)])
def test_the_interval_is_that_of_clopper_and_pearson(hits, trials):
    wanted = stats.binomtest(hits, trials).proportion_ci()
    assert exact_interval(hits, trials) == pytest.approx((wanted.low, wanted.high), abs=1e-9)
