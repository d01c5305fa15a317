"""The split: the vectors of the reference table, its shares, and who moves when weights change."""

import hashlib
import itertools
import math
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.traffic import Split, moved_fraction, shares_of, uniform, unit_text

RATIOS = ((95, 5), (90, 10), (75, 25), (50, 50), (25, 75), (5, 95))
VECTORS = (
    ("user-1", 0.641990183, 1.206552807, "v1 v1 v1 v1 v2 v2"),
    ("user-2", 0.388989649, 0.216603799, "v1 v1 v1 v2 v2 v2"),
    ("user-3", 0.329730845, 1.098815919, "v1 v1 v1 v1 v1 v2"),
    ("42", 1.771602789, 3.664538210, "v1 v1 v1 v1 v2 v2"),
    ("用户1", 0.732099437, 2.177984774, "v1 v1 v1 v1 v2 v2"),
)
UNITS = [f"user-{n}" for n in range(20_000)]


def split(weights, *, experiment="ctr-exp-1", coverage=1.0, default="v1"):
    return Split(experiment, tuple(weights.items()), coverage, default)


@pytest.mark.parametrize(("unit", "e1", "e2", "arms"), VECTORS)
def test_the_exponentials_are_those_of_the_reference_table(unit, e1, e2, arms):
    for arm, expected in (("v1", e1), ("v2", e2)):
        drawn = -math.log(uniform(f"ctr-exp-1\0{arm}\0{unit}".encode()))
        assert drawn == pytest.approx(expected, abs=5e-10)


@pytest.mark.parametrize(("unit", "e1", "e2", "arms"), VECTORS)
def test_the_arms_are_those_of_the_reference_table(unit, e1, e2, arms):
    drawn = [split({"v1": w1, "v2": w2}).assign(unit).version for w1, w2 in RATIOS]
    assert drawn == arms.split()


def test_the_uniform_is_made_of_the_first_eight_bytes_of_sha256():
    head = hashlib.sha256(b"key").digest()[:8]
    assert uniform(b"key") == ((int.from_bytes(head, "big") >> 11) + 0.5) / 2**53


def test_the_gate_has_its_own_salt():
    unit = "user-1"
    u = uniform(f"ctr-exp-1/gate\0{unit}".encode())
    assert split({"v2": 1}, coverage=math.nextafter(u, 1)).assign(unit).reason == "split"
    assert split({"v2": 1}, coverage=u).assign(unit).reason == "default"  # u < coverage is inside


def test_ab01_42_and_the_text_42_are_one_unit():
    assert unit_text(42) == unit_text("42") == "42"


@pytest.mark.parametrize("nothing", [None, ""])
def test_an_empty_unit_is_no_unit(nothing):
    assert unit_text(nothing) is None


@pytest.mark.parametrize("value", [True, 1.5, ["a"], {}])
def test_other_kinds_are_no_unit_ids(value):
    with pytest.raises(TypeError):
        unit_text(value)


def test_ab01_assignment_is_the_same_in_every_process_and_under_every_hash_seed():
    code = (
        "import hashlib; from service.traffic import Split\n"
        "s = Split('home', (('v2', 30.0), ('v1', 70.0)), 1.0, 'v1')\n"
        "print(hashlib.sha256(''.join(s.assign(str(n)).version for n in range(100_000)).encode()).hexdigest())"
    )
    digests = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        )
        digests.add(done.stdout)
    assert len(digests) == 1
    assert digests != {""}


def test_ab01_shares_of_100000_units_are_within_four_standard_deviations():
    both = split({"v1": 70, "v2": 30})
    first = sum(both.assign(str(n)).version == "v1" for n in range(100_000))
    assert abs(first / 100_000 - 0.70) <= 0.006


def test_the_order_of_the_weights_does_not_matter():
    orders = itertools.permutations([("a", 5.0), ("b", 3.0), ("c", 2.0)])
    answers = {tuple(Split("x", order, 1.0, "a").assign(u).version for u in UNITS[:500]) for order in orders}
    assert len(answers) == 1


def test_a_ramp_moves_its_share_and_none_back():
    old, new = split({"v1": 50, "v2": 50}), split({"v1": 40, "v2": 60})
    moves = [(old.assign(u).version, new.assign(u).version) for u in UNITS]
    assert ("v2", "v1") not in moves
    assert sum(a != b for a, b in moves) / len(moves) == pytest.approx(0.10, abs=0.0085)


def test_weight_zero_gets_none():
    assert {split({"v1": 1, "v2": 0}).assign(u).version for u in UNITS[:5000]} == {"v1"}


def test_equal_shares_of_another_sum_move_nobody():
    old, new = split({"v1": 95, "v2": 5}), split({"v1": 285, "v2": 15})
    assert [old.assign(u) for u in UNITS[:2000]] == [new.assign(u) for u in UNITS[:2000]]
    assert moved_fraction(old, new) == 0


def test_a_unit_outside_the_coverage_gets_the_default_and_no_propensity():
    answers = [split({"v2": 1}, coverage=0.2).assign(u) for u in UNITS]
    outside = [a for a in answers if a.reason == "default"]
    assert len(outside) / len(answers) == pytest.approx(0.8, abs=0.012)
    assert {(a.version, a.propensity) for a in outside} == {("v1", None)}


def test_inside_a_small_coverage_every_arm_has_its_share():
    """A gate and a choice by one hash would leave the first arms alone in a small coverage."""
    answers = [a for a in map(split({"v1": 1, "v2": 1, "v3": 2}, coverage=0.1).assign, UNITS) if a.reason == "split"]
    shares = {version: sum(a.version == version for a in answers) / len(answers) for version in ("v1", "v2", "v3")}
    assert shares == pytest.approx({"v1": 0.25, "v2": 0.25, "v3": 0.5}, abs=0.045)


def test_a_growing_coverage_leaves_everybody_inside_with_their_arm():
    narrow, wide = (split({"v1": 1, "v2": 1, "v3": 1}, coverage=coverage) for coverage in (0.1, 0.6))
    inside = [u for u in UNITS[:5000] if narrow.assign(u).reason == "split"]
    assert [narrow.assign(u) for u in inside] == [wide.assign(u) for u in inside]


def test_two_experiments_share_out_their_units_independently():
    one, other = (split({"v1": 1, "v2": 1}, experiment=name) for name in ("exp-1", "exp-2"))
    alike = sum(one.assign(u).version == other.assign(u).version for u in UNITS) / len(UNITS)
    assert alike == pytest.approx(0.5, abs=0.0142)  # four standard deviations


def test_an_arm_that_goes_moves_only_its_own_units():
    old, new = split({"v1": 1, "v2": 1, "v3": 1}), split({"v1": 1, "v2": 1})
    stayed = [u for u in UNITS[:5000] if old.assign(u).version != "v3"]
    assert [old.assign(u).version for u in stayed] == [new.assign(u).version for u in stayed]


def test_propensity_is_the_share_inside_the_coverage():
    inside = {a for a in map(split({"v1": 9, "v2": 1}, coverage=0.5).assign, UNITS) if a.reason == "split"}
    assert {(a.version, a.propensity) for a in inside} == {("v1", 0.9), ("v2", 0.1)}


def test_without_a_unit_the_draw_goes_through_the_same_gate_and_shares():
    third = split({"v2": 1, "v3": 1}, coverage=0.5)
    answers = [third.assign(None) for _ in range(20_000)]
    assert {(a.reason, a.propensity) for a in answers} == {("no_unit", None)}
    counts = {version: sum(a.version == version for a in answers) / 20_000 for version in ("v1", "v2", "v3")}
    assert counts == pytest.approx({"v1": 0.5, "v2": 0.25, "v3": 0.25}, abs=0.02)


def test_a_split_without_arms_answers_everybody_with_the_default():
    assert split({}).assign("user-1").reason == "default"


def test_a_lone_surrogate_in_a_unit_is_assigned_like_any_other():
    assert split({"v1": 1, "v2": 1}).assign("\ud800").reason == "split"


@pytest.mark.parametrize("weights", [{"v1": 1e308, "v2": 1e308}, {"v1": 1e-320, "v2": 1e300}, {"v1": -1.0}])
def test_weights_that_make_no_distribution_are_refused(weights):
    with pytest.raises(ValueError):
        shares_of(weights)


def test_ab03_a_sum_that_misses_one_by_rounding_is_fine():
    assert sum(shares_of({"a": 0.7, "b": 0.2, "c": 0.1}).values()) == pytest.approx(1, abs=1e-15)
    assert shares_of({"a": 0.5, "b": 0.4}) == pytest.approx({"a": 5 / 9, "b": 4 / 9})


MOVES = (
    # The reference's table (its section 5), measured there with 200 000 users.
    ({"v1": 95, "v2": 5}, {"v1": 50, "v2": 50}, 0.45),
    ({"v1": 90, "v2": 5, "v3": 5}, {"v1": 50, "v2": 25, "v3": 25}, 0.40),
    ({"v1": 50, "v2": 50}, {"v1": 45, "v2": 45, "v3": 10}, 0.10),
    ({"v1": 1, "v2": 1}, {"v1": 1, "v2": 1, "v3": 1}, 1 / 3),
    ({"v1": 50, "v2": 50}, {"v1": 40, "v2": 60}, 0.10),
)


@pytest.mark.parametrize(("old", "new", "moved"), MOVES)
def test_the_moved_fraction_of_known_changes(old, new, moved):
    assert moved_fraction(split(old), split(new)) == pytest.approx(moved, abs=1e-12)


def test_the_moved_fraction_of_a_swap_is_beyond_the_bound_as_the_reference_measured():
    swap = moved_fraction(split({"v1": 45, "v2": 45, "v3": 10}), split({"v1": 45, "v2": 0, "v3": 55}))
    assert swap == pytest.approx(0.588, abs=0.004)


WEIGHTS = st.dictionaries(st.sampled_from(["v1", "v2", "v3", "v4"]), st.integers(1, 20).map(float), min_size=1)
COVERAGE = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])
SPLITS = st.builds(
    lambda experiment, weights, coverage, default: split(
        weights, experiment=experiment, coverage=coverage, default=default
    ),
    st.sampled_from(["a", "b"]),
    WEIGHTS,
    COVERAGE,
    st.sampled_from(["v1", "v2"]),
)


@settings(max_examples=30, deadline=None)
@given(SPLITS, SPLITS)
def test_the_moved_fraction_is_what_counting_units_gives(old, new):
    units = UNITS[:4000]
    counted = sum(old.assign(u).version != new.assign(u).version for u in units) / len(units)
    expected = moved_fraction(old, new)
    assert abs(counted - expected) <= 5 * math.sqrt(max(expected * (1 - expected), 1e-4) / len(units))
