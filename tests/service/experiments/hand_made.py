"""Evidence made by hand, or drawn from a seed."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from service.experiments.evidence import SUB_BUCKETS, Arm, Epoch, Evidence


def spread(total: int) -> np.ndarray:
    """A count spread over the sub-buckets as evenly as it goes."""
    counts = np.full(SUB_BUCKETS, total // SUB_BUCKETS, np.int64)
    counts[: total % SUB_BUCKETS] += 1
    return counts


def hashes(count: int, start: int = 0) -> np.ndarray:
    """Distinct units: `count` of them, from number `start` on."""
    return np.arange(start, start + count, dtype=np.uint64)


def drawn(rng: np.random.Generator, rate: float, exposures: int) -> tuple[np.ndarray, np.ndarray]:
    """(clicks, impressions) of so many impressions at a rate, over the sub-buckets."""
    shown = rng.multinomial(exposures, np.full(SUB_BUCKETS, 1 / SUB_BUCKETS))
    return rng.binomial(shown, rate), shown


def arm(version: str, share: float, clicks: Any = 0, impressions: Any = 0, units: Any = 0, **more: Any) -> Arm:
    """An arm from totals or arrays; units as hashes, or as a number of them."""
    clicks = spread(clicks) if isinstance(clicks, int) else clicks
    impressions = spread(impressions) if isinstance(impressions, int) else impressions
    known = hashes(units, abs(hash_of(version)) << 40) if isinstance(units, int) else units
    more.setdefault("predictions", impressions)
    return Arm(version, share, impressions=impressions, clicks=clicks, units=known, **more)


def hash_of(version: str) -> int:
    return sum(version.encode())


def epoch(*arms: Arm, number: int = 1, **more: Any) -> Epoch:
    values: dict[str, Any] = {"started": 1_700_000_000.0, "ended": None, "coverage": 1.0} | more
    return Epoch(number, arms=arms, **values)


def evidence(*epochs: Epoch, default: str = "v1", joined: Any = ()) -> Evidence:
    return Evidence("home-feed-7", default, epochs, tuple(joined))


def two_arms(seed: int, rates: Mapping[str, float], exposures: int, units: int = 1000) -> Evidence:
    """One epoch, equally split, without a fault."""
    rng = np.random.default_rng(seed)
    share = 1 / len(rates)
    return evidence(epoch(*(arm(name, share, *drawn(rng, rate, exposures), units) for name, rate in rates.items())))
