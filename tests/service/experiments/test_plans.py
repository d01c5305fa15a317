"""What a plan decides, by hand-made evidence and times."""

from dataclasses import replace

import pytest

from service.experiments.guardrails import ArmCounts, Guardrails, Heard, Signs
from service.experiments.plans import Course, Plan, Promote, Step, decide

PLAN = Plan("v2", (Step(0.05, 60), Step(1.0, 600)), Guardrails(True, None, 0.05), Promote(900, 0.01))
COURSE = Course("e", PLAN, 1, "running", "", 0, 1000.0, 1000.0, 7, 7, "v1", {"v1": 0.9, "v2": 0.1})
LAST = replace(COURSE, step=1, since=1060.0)
GOOD = Signs(0.1, ArmCounts(1000, 1), ArmCounts(9000, 9), 500, Heard((0.0, 0.1), "ok"))


def heard(**more):
    return GOOD._replace(heard=GOOD.heard._replace(**more))


def act(course, signs, now):
    return decide(course, signs, now).act


def test_a_step_is_held_for_its_time():
    assert act(COURSE, GOOD, 1059.9) == "stay"


def test_after_its_time_the_next_step_comes():
    assert decide(COURSE, GOOD, 1060.0) == ("step", "running", "step 2 of 2: coverage 1")


def test_ab_without_evidence_time_alone_moves_nothing():
    assert decide(COURSE, None, 9e9).state == "holding"


@pytest.mark.parametrize("requests", [0, 9])
def test_without_requests_in_the_step_it_holds(requests):
    assert decide(COURSE, GOOD._replace(in_step=requests), 2000).state == "holding"


@pytest.mark.parametrize("state", ["warning", "mismatch"])
def test_a_split_in_doubt_holds_and_does_not_roll_back(state):
    move = decide(COURSE, heard(srm=state), 2000)
    assert (move.act, move.state) == ("stay", "holding")


def test_a_guardrail_acts_before_the_step_is_over():
    assert act(COURSE, GOOD._replace(version=ArmCounts(100, 50)), 1001) == "roll_back"


def test_a_guardrail_acts_while_the_plan_holds():
    signs = GOOD._replace(version=ArmCounts(100, 50), in_step=0)
    assert act(COURSE, signs, 9e9) == "roll_back"


def test_a_guardrail_still_acts_when_every_step_is_done():
    plan = replace(PLAN, promote=None)
    assert act(replace(LAST, plan=plan, state="watching"), heard(lift=(-0.3, -0.1)), 9e9) == "roll_back"


def test_without_promote_the_end_is_to_watch():
    move = decide(replace(LAST, plan=replace(PLAN, promote=None)), GOOD, 9e9)
    assert (move.act, move.state) == ("stay", "watching")


def test_it_is_promoted_after_its_time_and_with_its_margin():
    assert act(LAST, GOOD, 1900) == "promote"


def test_it_is_not_promoted_before_its_time():
    assert act(LAST, GOOD, 1899) == "stay"


def test_it_is_not_promoted_while_the_lift_may_be_below_the_margin():
    assert act(LAST, heard(lift=(-0.01, 0.3)), 9e9) == "stay"


def test_it_is_not_promoted_without_a_lift():
    assert decide(LAST, heard(lift=None), 9e9).state == "holding"


def test_it_is_not_promoted_under_suspicion_of_a_leak():
    assert decide(LAST, heard(suspicion="its online AUC is 0.1 below"), 9e9).state == "holding"


def test_a_plan_survives_being_written_as_json():
    assert Plan.of(PLAN.body()) == PLAN
