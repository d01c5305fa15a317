"""Units: hashes by the published rule, and one sample of them over all workers."""

import hashlib

import numpy as np
import pytest

from service.experiments.units import Seen, UnitHash
from service.state import StateStore, counts
from service.state.counts import MOST_UNITS, limit


@pytest.fixture(name="store")
def _store(any_state):
    with StateStore.open(any_state) as store:
        yield store


def add(store, epoch, pairs):
    with store.transaction() as change:
        return change.counts.add_units(epoch, pairs)


def units(store, epoch):
    with store.reading() as view:
        return view.counts.units(epoch)


@pytest.mark.parametrize("unit", ["u1", "42", "用户1"])
def test_a_sub_bucket_is_u_of_the_first_8_bytes_under_its_own_salt(unit):
    head = int.from_bytes(hashlib.sha256(b"home/sub\0" + unit.encode()).digest()[:8], "big")
    u = ((head >> 11) + 0.5) / 2**53
    assert UnitHash("home")(unit)[0] == int(u * 256)


def test_sub_buckets_are_even():
    found = np.bincount([UnitHash("home")(f"u{n}")[0] for n in range(25_600)], minlength=256)
    expected = 100
    assert ((found - expected) ** 2 / expected).sum() < 331  # chi-square of 255, p = 0.001


def test_a_sample_by_hash_leaves_every_sub_bucket_its_part():
    pairs = [UnitHash("home")(f"u{n}") for n in range(25_600)]
    sampled = np.bincount([sub for sub, unit in pairs if unit < limit(1)], minlength=256)
    assert ((sampled - 50) ** 2 / 50).sum() < 331


def test_a_unit_is_told_once_for_each_arm():
    seen = Seen()
    for version in ("v1", "v1", "v2", "v1"):
        seen.add(version, 5)
    assert seen.take() == [("v1", 5), ("v2", 5)]
    seen.add("v1", 5)
    assert seen.take() == []


def test_a_halved_worker_forgets_what_lies_above():
    seen = Seen()
    seen.halve(1)
    seen.add("v1", 2**63)
    seen.add("v1", 2**63 - 1)
    assert seen.take() == [("v1", 2**63 - 1)]


def test_workers_units_are_merged_by_union(store):
    add(store, 1, [("v1", 1), ("v1", 2)])
    add(store, 1, [("v1", 2), ("v2", 3)])
    assert units(store, 1) == [("v1", 1), ("v1", 2), ("v2", 3)]


def test_a_unit_in_two_arms_of_one_epoch_shows(store):
    add(store, 1, [("v1", 7), ("v2", 7)])
    assert units(store, 1) == [("v1", 7), ("v2", 7)]


def test_units_are_exact_to_65536_and_then_a_half_of_all_arms(store):
    hashes = [int(one) for one in np.random.default_rng(3).integers(0, 2**64, MOST_UNITS + 1, np.uint64)]
    pairs = [("v1" if n % 2 else "v2", one) for n, one in enumerate(hashes)]
    assert add(store, 1, pairs[:MOST_UNITS]) == 0
    assert len(units(store, 1)) == MOST_UNITS
    assert add(store, 1, pairs[MOST_UNITS:]) == 1
    kept = set(units(store, 1))
    assert kept == {pair for pair in pairs if pair[1] < 2**63}


def test_a_worker_that_is_behind_adds_only_what_the_sample_has(store, monkeypatch):
    monkeypatch.setattr(counts, "MOST_UNITS", 2)
    assert add(store, 1, [("v1", 1), ("v1", 2), ("v1", 2**63)]) == 1
    assert add(store, 1, [("v2", 2**63 + 1)]) == 1
    assert units(store, 1) == [("v1", 1), ("v1", 2)]


def test_epochs_are_sampled_apart(store):
    add(store, 1, [("v1", 1)])
    add(store, 3, [("v1", 1)])
    assert (units(store, 1), units(store, 2), units(store, 3)) == ([("v1", 1)], [], [("v1", 1)])
