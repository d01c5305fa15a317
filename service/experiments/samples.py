"""Which answers have their scores kept, to be joined with clicks: a share of them by their ids' nonce.

The share falls with the traffic, so that a worker keeps at most so many a second, and with what the store has already.
An answer that is shadowed is kept as long as the store's own share has room for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.state.samples import DRAWS, LEAST, Kept

# What one worker keeps a second, about, of its answers that are not shadowed; with those that are, it may be four times
# as many. To hash the items of one answer takes up to a tenth of a millisecond.
KEPT_A_SECOND = 50
MOST_ITEMS = 100


class Answer(NamedTuple):
    """Scores to be kept: `items` in their order, None in row form, where they are the rows' indices."""

    prediction: bytes
    experiment: str
    version: str
    at: int
    draw: int
    unit: int
    items: Sequence[object] | None
    scores: npt.NDArray[np.float32]
    shadow_version: str | None
    shadow: npt.NDArray[np.float32] | None


class Sampler:
    """Of one worker: its event loop asks and keeps, then takes what was kept to be stored."""

    def __init__(self, a_second: int = KEPT_A_SECOND) -> None:
        self._budget = a_second
        self._share = DRAWS
        self._asked = 0
        self._halvings: dict[str, int] = {}
        self._answers: list[Answer] = []

    def wants(self, experiment: str, draw: int, shadowed: bool) -> bool:
        """Whether an answer with this draw of 32 bits is to be kept."""
        self._asked += 1
        most = DRAWS >> self._halvings.get(experiment, 0)
        return draw < (most if shadowed else min(most, self._share))

    def keep(self, answer: Answer) -> None:
        """Keep it, unless there are too many."""
        if len(self._answers) < 2 * self._budget:
            self._answers.append(answer)

    def take(self, seconds: float) -> list[Answer]:
        """What was kept in the past so many seconds; how many more will be depends on how many were asked for."""
        budget = self._budget * max(seconds, 0.01)
        self._share = min(DRAWS, int(DRAWS * budget / self._asked)) if self._asked else DRAWS
        self._asked = 0
        taken, self._answers = self._answers, []
        return taken

    def halved(self, experiment: str, halvings: int) -> None:
        """How often the store has halved an experiment's sample."""
        self._halvings[experiment] = halvings


def packed(answer: Answer) -> Kept:
    """An answer as it is stored: the best of its items where they are many."""
    scores, items = answer.scores, answer.items
    best = np.arange(len(scores))
    if len(scores) > MOST_ITEMS:
        best = np.argsort(-scores, kind="stable")[:MOST_ITEMS]
    names = [str(n) if items is None else str(items[n]) for n in best.tolist()]
    hashes = np.array([item_number(name.encode("utf-8", "surrogatepass")) for name in names], "<i8")
    return Kept(
        answer.prediction,
        answer.experiment,
        answer.version,
        answer.at,
        answer.draw,
        answer.unit,
        max(LEAST, len(best)),
        hashes.tobytes(),
        scores[best].astype("<f4").tobytes(),
        answer.shadow_version,
        None if answer.shadow is None else answer.shadow[best].astype("<f4").tobytes(),
    )


def item_number(item: bytes) -> int:
    """The signed 64 bits that stand for an item, given as its canonical text's UTF-8."""
    return int.from_bytes(hashlib.sha256(item).digest()[:8], "big", signed=True)
