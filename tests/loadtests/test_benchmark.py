"""The benchmark's arithmetic and its work."""

import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "loadtests"))
from benchmark import accounts
from benchmark.check import Check
from benchmark.closed import Point, parse
from benchmark.payloads import body
from benchmark.report import number
from benchmark.schedule import Fates, arrivals, quantile
from benchmark.session import median
from benchmark.work import CATEGORIES, IDS, ITEMS, _events, _ids, config

POINT = Point("rank_100", "service", "rank_100", 8, 100.0, 1.0, 2.0, 0, 0.5, 500.0, 600.0, 0.1, 0.0, 0.0)


def fates(*rows: tuple[float, float, float, int]) -> Fates:
    """(due, sent, done, status) a request."""
    due, sent, done, status = (np.array(column) for column in zip(*rows, strict=True))
    return Fates(due, due, sent, done, status)


def test_a_quantile_is_a_measured_value():
    assert quantile(np.array([4.0, 1.0, 3.0, 2.0]), 0.5) == 2.0
    assert quantile(np.array([4.0, 1.0, 3.0, 2.0]), 0.99) == 4.0
    assert np.isnan(quantile(np.empty(0), 0.5))


def test_arrivals_meet_the_rate_of_each_phase_in_order():
    due = arrivals([(100, 2), (300, 1), (100, 2)])
    assert (np.diff(due) >= 0).all()
    assert Counter(np.digitize(due, [2, 3]).tolist()) == {0: 200, 1: 300, 2: 200}


def test_gaps_of_independent_arrivals_vary_as_much_as_they_last():
    gaps = np.diff(arrivals([(1000, 20)]))
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)


def test_even_arrivals_are_a_gap_apart():
    assert np.diff(arrivals([(10, 1)], poisson=False)) == pytest.approx([0.1] * 9)


def test_a_late_client_makes_the_server_no_faster():
    held_up = fates((0.0, 0.0, 1.0, 200), (0.1, 1.0, 1.1, 200))
    assert held_up.latencies() == pytest.approx([1.0, 1.0])


def test_refusals_and_losses_are_no_accepted_requests():
    found = fates((0, 0, 0.01, 200), (0, 0, 0.001, 429), (1, 1, 1.02, 503), (1, 1, 0, 0), (1, 1, 1.5, 500)).summary(2)
    assert (found["offered_per_second"], found["accepted_per_second"], found["refused_per_second"]) == (2.5, 0.5, 1.0)
    assert (found["unanswered"], found["other_statuses"]) == (1, 1)
    assert found["accepted_p99_ms"] == pytest.approx(10)
    assert found["refused_max_ms"] == pytest.approx(20)


def test_a_load_has_settled_after_the_last_slow_or_refused_request():
    of = fates((1.0, 1, 1.2, 429), (2.5, 2.5, 2.6, 200), (3.0, 3, 3.01, 200), (9.0, 9, 9.01, 200))
    assert of.unsettled(2.0, 0.05) == pytest.approx(0.5)
    assert of.unsettled(3.0, 0.05) == 0


def test_wrks_output_gives_its_counts():
    line = 'RESULT {"requests":3,"seconds":2.0,"p50_ms":1,"p99_ms":2,"not_200":1,"socket":0,"timeout":0}'
    counts = parse(f"Running 2s test @ http://127.0.0.1\n  1 threads\n{line}\n")
    assert counts is not None
    assert (counts.requests, counts.not_200) == (3, 1)
    assert parse("unable to connect") is None


def test_a_cell_holds_the_median_of_each_figure():
    points = [replace(POINT, per_second=rate, p99_ms=10 / rate) for rate in (1.0, 5.0, 2.0)]
    assert (median(points).per_second, median(points).p99_ms) == (2.0, 5.0)


@pytest.mark.parametrize(
    ("check", "verdict"),
    [
        (Check("r", "", 0.6, 0.45, 0.55), "aim"),
        (Check("r", "", 0.5, 0.45, 0.55), "must"),
        (Check("r", "", 0.4, 0.45, 0.55), "short"),
        (Check("r", "", 600, 580, 340, at_most=True), "short"),
        (Check("r", "", 300, 580, 340, at_most=True), "aim"),
        (Check("r", "", 7.0, None, 5.0, at_most=True), "below the aim"),
        (Check("r", "", float("nan"), None, 5.0), "short"),
        (Check("r", "", 1.0), "-"),
    ],
)
def test_a_verdict_names_the_bound_that_is_met(check: Check, verdict: str):
    assert check.verdict == verdict


def test_numbers_are_short_for_people():
    assert [number(value) for value in (12345.6, 0.12345, 3, float("nan"), None)] == [
        "12,346",
        "0.123",
        "3",
        "none",
        "",
    ]


def test_stolen_time_is_not_busy_time():
    ticks = accounts.TICKS
    assert accounts._machine(f"cpu  {ticks} 0 {ticks} 50 50 0 {ticks} {2 * ticks} 0 0") == (3.0, 2.0)


def test_the_accounts_of_a_process_are_its_own():
    assert accounts.moment(os.getpid()).tree_cpu > 0
    held = accounts.memory(os.getpid())
    assert 0 < held.pss_mb <= held.rss_mb


def test_the_work_has_a_million_ids_and_each_occurs():
    assert (len(CATEGORIES), sum(CATEGORIES.values())) == (26, IDS)
    assert len(np.unique(_ids(np.random.default_rng(0), 1000, 5000))) == 1000


def test_the_works_config_is_one_that_training_takes(tmp_path: Path):
    from training.config import read_config

    (tmp_path / "work.toml").write_text(config())
    read = read_config(tmp_path / "work.toml")
    kinds = Counter((feature.kind, feature.side == "item") for feature in read.schema.features)
    assert kinds == {
        ("categorical", False): 13,
        ("categorical", True): 13,
        ("numeric", False): 7,
        ("numeric", True): 6,
    }
    assert {feature.dim for feature in read.schema.features if feature.kind == "categorical"} == {16}


def test_events_hold_the_users_features_and_the_label():
    events = _events(np.random.default_rng(0), {"I8": np.zeros(ITEMS)}, ITEMS)
    assert events.keys() == {
        "user_id",
        "item_id",
        "clicked",
        *(f"C{n}" for n in range(1, 14)),
        *(f"I{n}" for n in range(1, 8)),
    }
    assert set(events["clicked"].tolist()) == {0, 1}


def test_bodies_name_every_feature_once():
    draw = np.random.default_rng(0)
    rows = body(draw, "rows_100", 100, 3)
    assert {len(row) for row in rows["instances"]} == {39}
    rank = body(draw, "rank_100", 100, 3)
    assert (len(rank["user"]), len(rank["context"]), len(rank["candidates"])) == (16, 4, 100)
    assert all(type(item) is int for item in rank["candidates"])
