"""Which state an experiment is in, and what its sentence says."""

import numpy as np
import pytest

from service.experiments.comparison import Comparison, Interval
from service.experiments.settings import ReportSettings
from service.experiments.split_state import Fault
from service.experiments.verdict import judge

SETTINGS = ReportSettings()


def comparison(low: float, high: float, *, time: float = 1.0, clicks: int = 5000) -> Comparison:
    interval = Interval(*(np.asarray(one) for one in ((low + high) / 2, low, high)))
    judged = time >= SETTINGS.least_time and clicks >= SETTINGS.least_clicks and np.isfinite(low)
    return Comparison(interval, np.asarray(0.5), np.asarray(time), np.asarray(clicks), np.asarray(judged))


def verdict(faults=(), *, warned: bool = False, **comparisons: Comparison):
    return judge("v1", comparisons, faults, SETTINGS, warned=warned)


@pytest.mark.parametrize(
    ("low", "high", "state"),
    [
        (0.001, 0.3, "better"),
        (-0.3, -0.001, "worse"),
        (-0.015, 0.019, "no_difference"),
        (-0.021, 0.01, "collecting"),
        (-0.3, 0.3, "collecting"),
        (0.001, 0.01, "better"),
    ],
)
def test_the_interval_gives_the_state(low: float, high: float, state: str):
    found = verdict(v2=comparison(low, high))
    assert found.state == state
    assert found.version == (None if state == "collecting" else "v2")


@pytest.mark.parametrize(("time", "clicks"), [(0.019, 5000), (1.0, 99)])
def test_nothing_is_judged_too_early(time: float, clicks: int):
    assert verdict(v2=comparison(0.1, 0.3, time=time, clicks=clicks)).state == "collecting"


def test_a_fault_outranks_the_best_of_lifts():
    found = verdict([Fault("1 unit is in more than one arm of epoch 3")], v2=comparison(0.1, 0.3))
    assert found.state == "broken"
    assert "more than one arm of epoch 3" in found.text
    assert "new experiment" in found.text


def test_of_several_the_best_is_named():
    found = verdict(v2=comparison(0.01, 0.1), v3=comparison(0.1, 0.3), v4=comparison(-0.3, -0.1))
    assert (found.state, found.version) == ("better", "v3")


def test_one_that_is_worse_is_named_while_others_collect():
    found = verdict(v2=comparison(-0.2, 0.2), v3=comparison(-0.3, -0.1), v4=comparison(-0.5, -0.2))
    assert (found.state, found.version) == ("worse", "v4")


def test_several_make_no_difference_only_together():
    assert verdict(v2=comparison(-0.01, 0.01), v3=comparison(-0.01, 0.01)).state == "no_difference"
    assert verdict(v2=comparison(-0.01, 0.01), v3=comparison(-0.1, 0.1)).state == "collecting"


def test_what_is_not_a_number_is_no_verdict():
    assert verdict(v2=comparison(np.nan, np.nan)).state == "collecting"


def test_the_sentence_says_by_how_much_and_how_surely():
    found = verdict(v2=comparison(0.031, 0.173))
    assert found.text == (
        "v2 is better than v1: its click rate is 10.2% higher, between 3.1% and 17.3% "
        "(at 95%, however often one looks)."
    )


def test_the_sentence_of_a_loss_counts_downwards():
    found = verdict(v2=comparison(-0.173, -0.031))
    assert "v2 is worse than v1: its click rate is 10.2% lower, between 3.1% and 17.3%" in found.text


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (comparison(-0.1, 0.2), "v2 is at +5.0%, which may be anything from -10.0% to +20.0%"),
        (comparison(0.1, 0.2, clicks=37), "v2 has 37 clicks in the arm that has fewer, of the 100 needed"),
        (comparison(0.1, 0.2, time=0.01), "v2 has 1.0% of the planned size, of the 2.0% needed"),
        (comparison(np.nan, np.nan, time=0.0), "v2 has had no impressions beside it in any epoch"),
        (comparison(np.nan, np.nan), "v2 gives no interval yet"),
    ],
)
def test_the_sentence_says_what_is_waited_for(one: Comparison, said: str):
    assert said in verdict(v2=one).text


def test_a_warning_about_the_split_goes_with_the_verdict():
    found = verdict(warned=True, v2=comparison(0.1, 0.2))
    assert found.state == "better"
    assert "close to a mismatch" in found.text


def test_an_experiment_of_one_version_says_so():
    assert "no version but v1 has had weight" in verdict().text


@pytest.mark.parametrize(
    "wrong", [{"alpha": 0}, {"planned": 0}, {"planned": float("nan")}, {"margin": -1}, {"srm_mismatch": 0.5}]
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError):
        ReportSettings(**wrong)
