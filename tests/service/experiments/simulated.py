"""Users, impressions and clicks drawn from a seed, counted in sub-buckets as the ledger counts them.

A user's click rate is Beta(1.5, 28.5), 5 % on average, and impressions are geometric, 10 on average: users differ.
Shape letters: L looks, A arms, E epochs, K sub-buckets; `impressions` and `clicks` of a run are (L, A, E, K).
"""

from dataclasses import dataclass

import numpy as np

from service.experiments.evidence import SUB_BUCKETS

MEAN_IMPRESSIONS = 10
MEAN_RATE = 0.05


@dataclass(frozen=True)
class Run:
    """What each look saw, all before it included; `users` are (L, A)."""

    clicks: np.ndarray
    impressions: np.ndarray
    users: np.ndarray

    def arm(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        return self.clicks[:, number], self.impressions[:, number]


def rates(rng: np.random.Generator, users: int) -> np.ndarray:
    return rng.beta(1.5, 28.5, users)


def new_users(rng: np.random.Generator, users: int, looks: int, *, lift: float = 0.0) -> Run:
    """Every user comes once, between two looks; the second arm's rates are higher by `lift`."""
    arm = rng.integers(0, 2, users)
    look = rng.integers(0, looks, users)
    return _count(rng, arm, look, np.zeros(users, np.int64), rates(rng, users) * (1 + lift * arm), users, looks, 1)


def returning_users(rng: np.random.Generator, users: int, looks: int, visits: int, shares: list[float]) -> Run:
    """Users come `visits` times at any time. The second arm's share is one of `shares` in each part of the time, and
    users move with it as the split moves them."""
    visitor = np.repeat(np.arange(users), visits)
    look = rng.integers(0, looks, users * visits)
    epoch = look * len(shares) // looks
    arm = (rng.random(users)[visitor] < np.asarray(shares)[epoch]).astype(np.int64)
    return _count(rng, arm, look, epoch, rates(rng, users)[visitor], visitor, looks, len(shares))


def _count(
    rng: np.random.Generator,
    arm: np.ndarray,
    look: np.ndarray,
    epoch: np.ndarray,
    rate: np.ndarray,
    visitor: np.ndarray | int,
    looks: int,
    epochs: int,
) -> Run:
    shown = rng.geometric(1 / MEAN_IMPRESSIONS, len(arm))
    clicks = rng.binomial(shown, rate)
    users = np.arange(visitor) if isinstance(visitor, int) else visitor
    bucket = rng.integers(0, SUB_BUCKETS, users.max() + 1)[users]
    shape = (looks, 2, epochs, SUB_BUCKETS)
    cell = np.ravel_multi_index((look, arm, epoch, bucket), shape)

    def total(weights: np.ndarray | None) -> np.ndarray:
        counts = np.bincount(cell, weights, int(np.prod(shape))).reshape(shape)
        return counts.cumsum(axis=0).astype(np.int64)

    return Run(total(clicks), total(shown), total(None).sum(axis=(2, 3)))


def variance_of_a_user(rng: np.random.Generator, lift: float = 0.0) -> float:
    """Of a rate estimated from n users, times n: by the linear form of the ratio, over a million of them."""
    shown = rng.geometric(1 / MEAN_IMPRESSIONS, 1_000_000)
    clicks = rng.binomial(shown, rates(rng, 1_000_000) * (1 + lift))
    return float(np.var(clicks - clicks.sum() / shown.sum() * shown) / MEAN_IMPRESSIONS**2)
