"""What a worker has tallied into the store, and the upkeep of what is stored there. Blocking; raises StateError."""

from __future__ import annotations

import random
from itertools import groupby
from typing import NamedTuple

from service.experiments.events import SKEW_SECONDS
from service.experiments.samples import packed
from service.experiments.tally import Taken
from service.state import StateStore

# Keys without a time are looked through for old ones in so many parts, one after each flush.
PARTS = 4096
KEYS_A_STEP = 20_000
ANSWERS_A_STEP = 500


class Written(NamedTuple):
    """How often the store has halved its samples by now: of units by epoch, of answers by experiment."""

    units: dict[int, int]
    answers: dict[str, int]


def write(store: StateStore, taken: Taken) -> Written:
    """Add what was taken, all or nothing."""
    written = Written({}, {})
    if not (taken.cells or taken.units or taken.answers):
        return written
    answers = sorted((packed(one) for one in taken.answers), key=lambda one: (one.experiment, one.prediction))
    with store.adding() as change:
        change.counts.add({key: (*counts, 0, 0) for key, counts in taken.cells.items()})
        for epoch in sorted(taken.units):
            written.units[epoch] = change.counts.add_units(epoch, taken.units[epoch])
        for experiment, kept in groupby(answers, key=lambda one: one.experiment):
            written.answers[experiment] = change.samples.add(experiment, kept)
    return written


class Upkeep:
    """Removes what no event can need any more, a little at a time; `window` in seconds."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._part = random.randrange(PARTS)

    def step(self, store: StateStore, now: float) -> int:
        """Look through one part; how many rows went."""
        before = now - self._window - 2 * SKEW_SECONDS
        self._part = (self._part + 1) % PARTS
        with store.transaction() as change:
            gone = change.counts.forget_keys(before, KEYS_A_STEP)
            gone += change.counts.forget_timeless(self._part, PARTS, before)
            return gone + change.samples.forget(before, ANSWERS_A_STEP)
