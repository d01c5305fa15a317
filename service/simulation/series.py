"""Many simulations one after the other, each an experiment of its own: how often the verdict is what the truth says."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TextIO

from service.simulation.gateway import Gateway
from service.simulation.run import Wish, run

Report = dict[str, Any]


class Course(NamedTuple):
    """What was ever said of one experiment, over all looks at it, and how many looks there were."""

    verdicts: frozenset[str]
    splits: frozenset[str]
    leaks: frozenset[str]
    looks: int


# What is counted, and in which runs it is so.
COUNTED: tuple[tuple[str, Callable[[Course], bool]], ...] = (
    ("ever better", lambda one: "better" in one.verdicts),
    ("ever worse", lambda one: "worse" in one.verdicts),
    ("ever broken", lambda one: "broken" in one.verdicts),
    ("split ever in doubt (warning or mismatch)", lambda one: bool(one.splits & {"warning", "mismatch"})),
    ("split ever a mismatch", lambda one: "mismatch" in one.splits),
    ("leak ever suspected", lambda one: "suspected" in one.leaks),
)


def run_all(gateway: Gateway, wish: Wish, *, out: TextIO = sys.stderr) -> list[Course]:
    """One experiment a run, named by its number, with users of its own. Raises GatewayError."""
    found = []
    for number in range(1, wish.runs + 1):
        name = wish.experiment and f"{wish.experiment}-{number}"
        looks: list[Report] = []
        last = run(gateway, replace(wish, experiment=name, seed=wish.seed + number - 1), out=out, look=looks.append)
        found.append(course([*looks, last]))
        print(f"run {number} of {wish.runs}: {last['verdict']['state']}, split {last['srm']['state']}", file=out)
    return found


def course(reports: Sequence[Report]) -> Course:
    """What was ever said in these reports."""
    leaks = (one["shadow"]["leak"]["state"] for one in reports if one["shadow"] is not None)
    return Course(
        frozenset(one["verdict"]["state"] for one in reports),
        frozenset(one["srm"]["state"] for one in reports),
        frozenset(leaks),
        len(reports),
    )


def tally(courses: Sequence[Course]) -> Iterator[str]:
    """Each count with its exact interval."""
    looks = [one.looks for one in courses]
    yield f"{len(courses)} experiments, each looked at {min(looks)} to {max(looks)} times"
    for what, is_so in COUNTED:
        hits = sum(map(is_so, courses))
        low, high = exact_interval(hits, len(courses))
        yield f"  {what}: {hits} of {len(courses)} ({low:.1%} to {high:.1%})"


def exact_interval(hits: int, trials: int, alpha: float = 0.05) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share."""
    low = 0.0 if hits == 0 else _share_where(lambda p: 1 - _at_most(hits - 1, trials, p), alpha / 2)
    high = 1.0 if hits == trials else _share_where(lambda p: -_at_most(hits, trials, p), -alpha / 2)
    return low, high


def _share_where(rising: Callable[[float], float], value: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return (low + high) / 2


def _at_most(hits: int, trials: int, share: float) -> float:
    """P(X <= hits) of a binomial with 0 < share < 1."""
    whole, odds = math.lgamma(trials + 1) + trials * math.log1p(-share), math.log(share) - math.log1p(-share)
    return math.fsum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * odds) for k in range(hits + 1)
    )
