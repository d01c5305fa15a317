"""The report of an experiment: hand-made evidence in, the contract's JSON out."""

import json

import numpy as np
import pytest

from service.experiments.evidence import Evidence, Joined
from service.experiments.report import report
from service.experiments.settings import ReportSettings
from tests.service.experiments.hand_made import arm, drawn, epoch, evidence, hashes, two_arms

SETTINGS = ReportSettings()
FIELDS = "version units predictions impressions clicks ctr interval lift lift_interval p auc calibration"


def judged(found: Evidence) -> dict:
    return report(found, settings=SETTINGS)


def state(found: Evidence) -> str:
    return judged(found)["verdict"]["state"]


def version(reported: dict, name: str) -> dict:
    return next(one for one in reported["versions"] if one["version"] == name)


def test_the_report_has_the_fields_of_the_contract():
    found = judged(two_arms(1, {"v1": 0.05, "v2": 0.05}, 30_000))
    assert {"experiment", "verdict", "versions", "srm", "epochs", "shadow", "plan"} <= found.keys()
    assert set(FIELDS.split()) <= found["versions"][0].keys()
    assert found["verdict"].keys() == {"state", "version", "text"}
    assert found["srm"].keys() == {"p", "state"}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_counts_are_added_up_over_sub_buckets_and_epochs():
    one = epoch(arm("v1", 0.5, 500, 10_000, 1000), arm("v2", 0.5, 400, 9_000, 1000))
    two = epoch(arm("v1", 0.5, 50, 1_000, 2000), arm("v2", 0.5, 40, 900, 1000), number=2)
    found = version(judged(evidence(one, two)), "v1")
    assert (found["units"], found["impressions"], found["clicks"]) == (2000, 11_000, 550)


def test_in_one_epoch_the_rate_is_clicks_by_impressions():
    found = judged(two_arms(2, {"v1": 0.05, "v2": 0.06}, 40_000))
    for one in found["versions"]:
        assert one["ctr"] == pytest.approx(one["clicks"] / one["impressions"])
        assert one["interval"][0] < one["ctr"] < one["interval"][1]
    lift = version(found, "v2")["ctr"] / version(found, "v1")["ctr"] - 1
    assert version(found, "v2")["lift"] == pytest.approx(lift)


def test_the_default_comes_first_and_is_compared_with_nobody():
    found = judged(evidence(*two_arms(3, {"v1": 0.05, "v2": 0.05, "v3": 0.05}, 9_000).epochs, default="v2"))
    assert [one["version"] for one in found["versions"]] == ["v2", "v1", "v3"]
    assert [one["lift"] is None for one in found["versions"]] == [True, False, False]


def test_a_large_lift_is_better_and_a_large_loss_is_worse():
    assert state(two_arms(4, {"v1": 0.05, "v2": 0.08}, 50_000)) == "better"
    assert state(two_arms(4, {"v1": 0.05, "v2": 0.03}, 50_000)) == "worse"


def test_two_alike_make_no_difference_in_the_end():
    assert state(two_arms(5, {"v1": 0.2, "v2": 0.2}, 3_000_000)) == "no_difference"
    assert state(two_arms(5, {"v1": 0.2, "v2": 0.2}, 30_000)) == "collecting"


@pytest.mark.parametrize(
    "nothing",
    [
        evidence(),
        evidence(epoch()),
        evidence(epoch(arm("v1", 1.0))),
        evidence(epoch(arm("v1", 0.5), arm("v2", 0.5))),
        evidence(epoch(arm("v1", 0.5, 0, 5000, 7), arm("v2", 0.5, 0, 5000, 7))),
    ],
)
def test_no_data_is_collecting_and_all_that_is_unknown_is_null(nothing: Evidence):
    found = judged(nothing)
    assert found["verdict"]["state"] == "collecting"
    assert found["srm"]["state"] == "collecting"
    assert {one["lift"] for one in found["versions"]} <= {None}
    json.dumps(found, allow_nan=False)


def test_a_split_that_units_do_not_follow_is_broken():
    found = judged(evidence(epoch(arm("v1", 0.5, 900, 9000, 600), arm("v2", 0.5, 100, 9000, 400))))
    assert found["srm"]["state"] == "mismatch"
    assert found["verdict"]["state"] == "broken"
    assert "v1 60.00% for 50.00%, v2 40.00% for 50.00%" in found["verdict"]["text"]


def test_a_small_imbalance_is_a_warning_first():
    found = judged(evidence(epoch(arm("v1", 0.5, units=1_100), arm("v2", 0.5, units=910))))
    assert found["srm"]["state"] == "warning"
    assert found["verdict"]["state"] == "collecting"


def test_a_unit_in_two_arms_of_an_epoch_is_broken():
    units = hashes(1000), hashes(1000, 999)
    found = judged(evidence(epoch(arm("v1", 0.5, units=units[0]), arm("v2", 0.5, units=units[1]))))
    assert found["verdict"]["state"] == "broken"
    assert found["epochs"][0]["units_in_two_arms"] == 1


def test_a_unit_whose_arm_changes_with_the_split_is_not():
    first = epoch(arm("v1", 0.9, units=hashes(900)), arm("v2", 0.1, units=hashes(100, 900)))
    second = epoch(arm("v1", 0.5, units=hashes(500)), arm("v2", 0.5, units=hashes(500, 500)), number=2)
    assert state(evidence(first, second)) == "collecting"


def test_traffic_in_an_arm_without_weight_is_broken():
    arms = arm("v1", 0.5, units=500), arm("v2", 0.5, units=500), arm("v3", 0.0, 0, 1, 1)
    found = judged(evidence(epoch(*arms)))
    assert (found["verdict"]["state"], found["verdict"]["version"]) == ("broken", "v3")


def test_an_arm_whose_weight_went_to_zero_between_epochs_is_not():
    first = epoch(arm("v1", 0.5, units=500), arm("v2", 0.5, units=500))
    second = epoch(arm("v1", 1.0, units=500), arm("v2", 0.0), number=2)
    assert state(evidence(first, second)) == "collecting"


def test_simpsons_ramp_is_judged_by_its_days():
    """Kohavi and Crook: pooled, the treatment's rate is lower; on each day it is higher."""
    friday = epoch(arm("v1", 0.99, 20_000, 990_000), arm("v2", 0.01, 230, 10_000))
    saturday = epoch(arm("v1", 0.5, 5_000, 500_000), arm("v2", 0.5, 6_000, 500_000), number=2)
    found = judged(evidence(friday, saturday))
    assert version(found, "v1")["ctr"] == pytest.approx(0.0151010101, abs=1e-10)
    assert version(found, "v2")["ctr"] == pytest.approx(0.0175, abs=1e-12)
    assert version(found, "v2")["lift"] > 0.13


def test_without_impressions_clicks_are_judged_by_prediction():
    rng = np.random.default_rng(7)
    arms = []
    for name, rate in (("v1", 0.05), ("v2", 0.08)):
        clicks, predictions = drawn(rng, rate, 50_000)
        arms.append(arm(name, 0.5, clicks, 0, 1000, predictions=predictions))
    found = judged(evidence(epoch(*arms)))
    assert (found["basis"], found["verdict"]["state"]) == ("predictions", "better")
    assert version(found, "v2")["ctr"] == pytest.approx(0.08, abs=0.005)


def test_a_version_that_never_sent_an_impression_beside_one_that_did_is_not_judged():
    rng = np.random.default_rng(8)
    clicks, shown = drawn(rng, 0.05, 50_000)
    found = judged(evidence(epoch(arm("v1", 0.5, clicks, shown, 500), arm("v2", 0.5, clicks, 0, 500))))
    assert found["verdict"]["state"] == "collecting"
    assert "no impressions beside it" in found["verdict"]["text"]


def test_two_challengers_share_one_alpha():
    arms = two_arms(9, {"v1": 0.05, "v2": 0.055, "v3": 0.05}, 30_000).epochs[0].arms
    pair = evidence(epoch(*(arm(one.version, 0.5, one.clicks, one.impressions, 10) for one in arms[:2])))
    three = evidence(epoch(*(arm(one.version, 1 / 3, one.clicks, one.impressions, 10) for one in arms)))
    alone, among = version(judged(pair), "v2"), version(judged(three), "v2")
    assert among["lift"] == pytest.approx(alone["lift"])
    assert among["lift_interval"][0] < alone["lift_interval"][0]
    assert among["p"] > alone["p"]


def test_units_of_a_sample_are_scaled_up():
    arms = arm("v1", 0.5, units=500), arm("v2", 0.5, units=500)
    found = judged(evidence(epoch(*arms, threshold=0.25)))
    assert version(found, "v1")["units"] == 2000
    assert found["epochs"][0]["units"] == {"v1": 2000, "v2": 2000}


def test_units_of_epochs_with_other_thresholds_are_counted_below_the_least():
    step = 2**64 // 1000
    spread_out = np.arange(1000, dtype=np.uint64) * np.uint64(step)
    first = epoch(arm("v1", 1.0, units=spread_out))
    second = epoch(arm("v1", 1.0, units=spread_out[:250]), number=2, threshold=0.25)
    assert version(judged(evidence(first, second)), "v1")["units"] == pytest.approx(1000, abs=4)


def test_online_quality_comes_from_the_joined_sample():
    scores = np.array([0.1, 0.2, 0.3, 0.4])
    clicked = np.array([False, True, False, True])
    joined = [Joined("v1", scores, clicked, hashes(4)), Joined("v1", scores, clicked, hashes(4, 4))]
    found = version(judged(evidence(epoch(arm("v1", 1.0)), joined=joined)), "v1")
    assert (found["auc"], found["joined"]) == (pytest.approx(0.75), 8)
    assert found["calibration"] == pytest.approx(0.5)
    assert found["auc_interval"][0] < 0.75 < found["auc_interval"][1]


def test_errors_stand_beside_those_of_the_default():
    found = judged(evidence(epoch(arm("v1", 0.9, errors=30, units=900), arm("v2", 0.1, errors=16, units=100))))
    assert version(found, "v1")["errors"] == {"count": 30, "p": None, "high": None}
    errors = version(found, "v2")["errors"]
    assert errors["p"] < 0.001
    assert (errors["count"], errors["high"]) == (16, True)


def test_epochs_say_when_and_how_the_traffic_was_split():
    arms = arm("v1", 0.9, units=90), arm("v2", 0.1, units=10)
    found = judged(evidence(epoch(*arms, number=7, ended=1_700_003_600.0, coverage=0.5, uncounted={"no_unit": 3})))
    (one,) = found["epochs"]
    assert (one["epoch"], one["coverage"], one["shares"]) == (7, 0.5, {"v1": 0.9, "v2": 0.1})
    assert (one["started"], one["ended"]) == ("2023-11-14T22:13:20.000+00:00", "2023-11-14T23:13:20.000+00:00")
    assert one["uncounted"] == {"no_unit": 3}


def test_shadow_and_plan_are_passed_through():
    found = report(evidence(), settings=SETTINGS, shadow={"version": "v3"}, plan={"state": "holding"})
    assert (found["shadow"], found["plan"]) == ({"version": "v3"}, {"state": "holding"})
