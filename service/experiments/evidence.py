"""What was counted in an experiment: the ledger stores it, the statistics judge it. Values only.

Shape letters: K sub-buckets of the unit hash (256), U sampled units, P sampled predictions' items.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

SUB_BUCKETS = 256

Counts = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]


def no_counts() -> Counts:
    return np.zeros(SUB_BUCKETS, np.int64)


@dataclass(frozen=True, slots=True)
class Arm:
    """One version in one epoch: what was assigned to it by the split, whoever answered (intention to treat).

    `share` is its part of the coverage, 0 for a version that had no weight. `predictions`, `impressions` and `clicks`
    are (K,), of matured and fresh predictions alike; `errors` are its requests that failed. `units` (U,) are the
    sampled units' hashes, sorted and distinct, all below the epoch's threshold.
    """

    version: str
    share: float
    predictions: Counts = field(default_factory=no_counts)
    impressions: Counts = field(default_factory=no_counts)
    clicks: Counts = field(default_factory=no_counts)
    errors: int = 0
    units: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))


@dataclass(frozen=True, slots=True)
class Epoch:
    """One split that did not change. `threshold` is the part of the hash space that is sampled, in (0, 1].

    `uncounted` are requests outside of the statistics by reason: override, no_unit, default.
    """

    number: int
    started: float  # seconds since 1970
    ended: float | None
    coverage: float
    arms: tuple[Arm, ...]
    threshold: float = 1.0
    uncounted: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Joined:
    """Sampled answers of one version, joined with clicks: (P,) each; `shadow` scores are NaN where none was asked."""

    version: str
    scores: Floats
    clicked: npt.NDArray[np.bool_]
    units: Hashes
    shadow_version: str | None = None
    shadow: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True)
class Evidence:
    """All of one experiment; `default` is the version that the others are compared with."""

    experiment: str
    default: str
    epochs: tuple[Epoch, ...]
    joined: tuple[Joined, ...] = ()
