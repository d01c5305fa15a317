"""What a plan hears of a report."""

import pytest

from service.experiments.beside import heard_of
from service.experiments.guardrails import Heard


def told(clicks=(500, 400), lift=(-0.1, 0.2), shadow=None, srm="ok"):
    base = {"version": "v1", "clicks": clicks[0], "lift_interval": None}
    mine = {"version": "v2", "clicks": clicks[1], "lift_interval": lift and list(lift)}
    return {"default": "v1", "versions": [base, mine], "srm": {"state": srm}, "shadow": shadow}


def test_it_hears_the_lift_and_the_state_of_the_split():
    assert heard_of(told(srm="warning"), "v2") == Heard((-0.1, 0.2), "warning", None)


@pytest.mark.parametrize("clicks", [(500, 99), (99, 500)])
def test_a_lift_of_few_clicks_is_not_heard(clicks):
    assert heard_of(told(clicks), "v2").lift is None


def test_a_lift_that_is_not_known_is_not_heard():
    assert heard_of(told(lift=None), "v2").lift is None


def test_without_a_report_nothing_is_heard():
    assert heard_of(None, "v2") == Heard()


def test_the_suspicion_of_its_own_shadow_is_heard():
    shadow = {"version": "v2", "leak": {"state": "suspected", "reasons": ["a", "b"]}}
    assert heard_of(told(shadow=shadow), "v2").suspicion == "a; b"


def test_the_suspicion_of_another_version_is_not():
    shadow = {"version": "v3", "leak": {"state": "suspected", "reasons": ["a"]}}
    assert heard_of(told(shadow=shadow), "v2").suspicion is None
