"""Synthetic users: who comes, how often, what is asked for them, and what they click. The truth of a simulation.

Click rates differ between users (Beta, mean 5 %), and users come back (geometric), so that clicks of one user are
alike: what makes naive intervals too narrow.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from service.traffic import Split

Scenario = Literal["aa", "lift", "srm", "leak"]
SCENARIOS: dict[str, str] = {
    "aa": "clicks do not depend on the version: no difference is to be found",
    "lift": "the challenger's items are clicked more often, by --lift",
    "srm": "some users of the default version never arrive: the split is broken",
    "leak": "clicks follow the scores of the version that answers, and its shadow knows nothing",
}
RATE = (1.5, 28.5)
VISITS = 3.0
ROWS = 5
# The part of the default version's users that is lost: a split of 50/50 looks like 52/48.
LOST = 1 - 48 / 52


@dataclass(frozen=True, slots=True)
class Truth:
    """What is simulated; `challenger` is the version that differs, `split` the one that the service follows."""

    scenario: Scenario
    default: str
    challenger: str
    split: Split
    lift: float = 0.1


class Visit(NamedTuple):
    """One request of one user; `rate` is how often the user clicks an item."""

    unit: str
    rate: float
    instances: list[dict[str, Any]]


def visits(truth: Truth, schema: Mapping[str, Any], users: int, seed: int, mean: float = VISITS) -> Iterator[Visit]:
    """Every request of so many users, `mean` of each, in the order of users, as they are drawn by the seed."""
    generator, name = random.Random(seed), f"sim{seed}"
    for number in range(users):
        unit, rate = f"{name}-{number}", generator.betavariate(*RATE)
        count = 1
        while generator.random() < 1 - 1 / mean:
            count += 1
        lost = truth.scenario == "srm" and generator.random() < LOST
        if lost and truth.split.assign(unit).version == truth.default:
            continue
        for _ in range(count):
            yield Visit(unit, rate, [_row(schema["features"], generator) for _ in range(ROWS)])


def clicks(truth: Truth, visit: Visit, version: str, scores: Sequence[float], chance: Callable[[], float]) -> list[int]:
    """Which rows are clicked of an answer by a version; `chance()` gives numbers in [0, 1)."""
    rates = [visit.rate] * len(scores)
    if truth.scenario == "lift" and version == truth.challenger:
        rates = [visit.rate * (1 + truth.lift)] * len(scores)
    elif truth.scenario == "leak":
        order = sorted(range(len(scores)), key=lambda n: scores[n])
        for place, n in enumerate(order):
            rates[n] = min(1.0, visit.rate * 4.0 * (place / max(1, len(scores) - 1)) ** 2)
    return [n for n, rate in enumerate(rates) if chance() < rate]


def _row(features: Sequence[Mapping[str, Any]], generator: random.Random) -> dict[str, Any]:
    return {feature["name"]: _value(feature["kind"], generator) for feature in features}


def _value(kind: str, generator: random.Random) -> Any:
    if kind == "numeric":
        return round(generator.uniform(0, 60), 2)
    if kind == "datetime":
        return int(time.time()) - generator.randrange(86_400)
    if kind == "multi":
        return [f"{generator.randrange(20)}" for _ in range(generator.randrange(1, 4))]
    return f"{generator.randrange(500)}"
