"""Every shape class runs until its times settle; told with a clock that only the calls move."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.scoring.encoded import Encoded, Floats, Ints
from service.scoring.engine import ALL, Engine
from service.scoring.features import FeatureEncoder
from service.scoring.half import Half
from service.scoring.sizes import sizes_from
from service.scoring.warming import MOST_CALLS, SETTLED, Clock, blank, settle, warm
from tests.service.scoring.halved import encoder_of, items_of, save_model


class Hand:
    """A clock's hand: each call moves it by the next of `times`, then by the last of them."""

    def __init__(self, *times: float) -> None:
        self.now, self.times, self.calls, self.slept = 0.0, list(times), 0, 0.0

    def call(self) -> None:
        self.now += self.times[min(self.calls, len(self.times) - 1)]
        self.calls += 1

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.now += seconds

    def clock(self, rests: float = 0.0) -> Clock:
        return Clock(lambda: self.now, self.sleep, rests, lambda: self.now)


def test_a_call_is_repeated_until_its_last_times_are_alike():
    hand = Hand(0.9, 0.5, 0.01)
    assert settle(hand.call, 100.0, hand.clock())
    assert hand.calls == 2 + SETTLED


def test_a_call_that_grows_slower_again_has_not_settled():
    hand = Hand(0.9, 0.01, 0.01, 0.8, 0.01)
    assert settle(hand.call, 100.0, hand.clock())
    assert hand.calls == 4 + SETTLED


def test_a_call_that_never_settles_ends_at_the_most_calls():
    hand = Hand(*(0.01 if n % 2 else 0.1 for n in range(MOST_CALLS)))
    assert not settle(hand.call, 100.0, hand.clock())
    assert hand.calls == MOST_CALLS


def test_warming_ends_with_its_time():
    hand = Hand(3.0)
    assert not settle(hand.call, 5.0, hand.clock())
    assert hand.calls == 2


def test_warming_rests_as_long_as_it_worked():
    hand = Hand(0.5)
    settle(hand.call, 100.0, hand.clock(rests=1.0))
    assert hand.slept == 0.5 * hand.calls


@pytest.fixture(scope="module")
def encoder() -> FeatureEncoder:
    return encoder_of()


@pytest.fixture
def engine(encoder: FeatureEncoder, tmp_path: Path) -> Engine:
    save_model(encoder, tmp_path / "model.pt")
    return Engine.load(tmp_path / "model.pt", "cpu", lanes=0)  # native code has no kernels to compile


def test_blank_rows_can_be_scored(engine: Engine, encoder: FeatureEncoder):
    assert np.isfinite(engine.forward(blank(encoder.layout, ALL, 3))).all()


def test_every_class_and_every_kernel_size_is_run(
    engine: Engine, encoder: FeatureEncoder, monkeypatch: pytest.MonkeyPatch
):
    rows: dict[str, set[int]] = {"forward": set(), "serve": set()}
    forward, serve = engine.forward, engine.serve

    def seen_forward(whole: Encoded) -> Floats:
        rows["forward"].add(whole.rows)
        return forward(whole)

    def seen_serve(users: Encoded, half: Half, places: Ints, index: Ints) -> Floats:
        rows["serve"].add(len(places))
        return serve(users, half, places, index)

    monkeypatch.setattr(engine, "forward", seen_forward)
    monkeypatch.setattr(engine, "serve", seen_serve)
    warm(engine, encoder.layout, engine.items(items_of(encoder)), 600, clock=Clock(rests=0.0))
    kernels = set() if engine.fused_from is None else set(sizes_from(engine.fused_from))
    for sizes in rows.values():
        assert sizes >= {1, 4, 20, 100, 500, 600} | kernels
