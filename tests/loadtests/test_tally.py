"""The load test's arithmetic."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "loadtests"))
from answers import fault
from tally import Tally, percentile


def test_op03_latencies_of_failures_stand_apart():
    tally = Tally()
    for _ in range(77):
        tally.add("ranking 100", 10.0, None)
    for _ in range(23):
        tally.add("ranking 100", 0.1, "status 429")
    of = tally.report(seconds=2, offered_per_second=60)["by_name"]["ranking 100"]
    assert of["right"] == {"count": 77, "p50_ms": 10.0, "p99_ms": 10.0, "max_ms": 10.0}
    assert of["failed"] == {"count": 23, "p50_ms": 0.1, "p99_ms": 0.1, "max_ms": 0.1}


def test_the_achieved_rate_counts_what_was_offered_alone():
    tally = Tally()
    for name in ("ranking 100", "ranking 100", "switch"):
        tally.add(name, 1.0, None)
    report = tally.report(seconds=2, offered_per_second=1, beside={"switch"})
    assert (report["requests"], report["achieved_per_second"], report["right_per_second"]) == (3, 1.0, 1.0)


def test_a_percentile_is_a_measured_value():
    assert percentile([1, 2, 3, 4], 0.5) == 2
    assert percentile([1, 2, 3, 4], 0.99) == 4
    assert percentile([], 0.5) is None


@pytest.mark.parametrize(
    "body",
    [
        '{"model_version": "v1", "predictions": [true]}',
        '{"model_version": "v1", "predictions": ["0.5"]}',
        '{"model_version": "v1", "predictions": [Infinity]}',
        '{"model_version": "v1", "predictions": [1e999]}',
        '{"model_version": "v1", "predictions": [-0.1]}',
        '{"model_version": "v1", "predictions": 0.5}',
        '{"model_version": null, "predictions": [0.5]}',
        "[0.5]",
        "",
    ],
)
def test_a_wrong_body_is_a_fault(body: str):
    assert fault(200, "v1", body.encode(), 1)


def test_a_right_body_is_none():
    assert fault(200, "v1", b'{"model_version": "v1", "predictions": [0, 1, 0.5]}', 3) is None
