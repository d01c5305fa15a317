"""Guardrails by hand-made evidence; the reference's vectors of the Bayes factor."""

import pytest

from service.experiments.guardrails import (
    ArmCounts,
    Guardrails,
    Heard,
    Signs,
    binomial_tail,
    tripped,
)

NOTHING = ArmCounts()


def signs(version=NOTHING, others=NOTHING, share=0.1, **heard):
    return Signs(share, version, others, version.requests, Heard(**heard))


def test_three_times_the_errors_trip():
    why = tripped(Guardrails(), signs(ArmCounts(1000, 12), ArmCounts(9000, 30)))
    assert "12 of 42" in why


def test_too_few_errors_do_not():
    assert tripped(Guardrails(), signs(ArmCounts(1000, 14), ArmCounts(9000, 45))) is None


def test_fewer_errors_than_its_share_never_trip():
    assert tripped(Guardrails(), signs(ArmCounts(5000, 1), ArmCounts(5000, 200), share=0.5)) is None


def test_errors_that_are_not_watched_do_not_trip():
    assert tripped(Guardrails(errors=False), signs(ArmCounts(1000, 900), ArmCounts(9000, 1))) is None


def test_without_any_traffic_nothing_trips():
    assert tripped(Guardrails(True, 50, 0.02), signs()) is None


def test_a_p99_beyond_its_bound_trips():
    assert "30 of 200" in tripped(Guardrails(p99_ms=50), signs(ArmCounts(200, 0, 200, 30)))


def test_a_p99_that_chance_explains_does_not():
    assert tripped(Guardrails(p99_ms=50), signs(ArmCounts(200, 0, 200, 4))) is None


def test_a_p99_of_few_requests_does_not():
    assert tripped(Guardrails(p99_ms=50), signs(ArmCounts(50, 0, 50, 50))) is None


def test_a_loss_of_ctr_trips_only_where_the_whole_interval_is_beyond_the_margin():
    rails = Guardrails(ctr_margin=0.02)
    assert tripped(rails, signs(lift=(-0.2, -0.01))) is None
    assert "CTR" in tripped(rails, signs(lift=(-0.2, -0.03)))


def test_a_version_with_all_the_traffic_cannot_be_compared():
    assert tripped(Guardrails(), signs(ArmCounts(100, 90), share=1.0)) is None


@pytest.mark.parametrize(("successes", "p"), [(0, 1.0), (1, 1 - 0.99**100), (2, 1 - 0.99**100 - 100 * 0.01 * 0.99**99)])
def test_the_binomial_tail(successes, p):
    assert binomial_tail(successes, 100, 0.01) == pytest.approx(p)
