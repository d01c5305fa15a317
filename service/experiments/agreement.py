"""How far two versions agree on one request, and the sums of that over many. Pure functions; B rows a request.

Rank correlation is Spearman's rho with average ranks for ties: it says whether the order changes, whatever the level of
the scores; the gap says whether the level does.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from service.scoring.encoded import Floats

TOP = 10
NORMAL = 1.959964  # the 97.5 % point: 95 % intervals of means over many requests

Ranks = npt.NDArray[np.float64]
Order = npt.NDArray[np.intp]


class Sums(NamedTuple):
    """Additive over requests, workers and time: a sum and a sum of squares (`_2`) for each mean.

    `ranked` counts the requests whose rank correlation exists, `topped` those of two rows or more.
    """

    requests: int = 0
    rows: int = 0
    dropped: int = 0
    failed: int = 0
    ranked: int = 0
    rank: float = 0.0
    rank_2: float = 0.0
    topped: int = 0
    overlap: float = 0.0
    overlap_2: float = 0.0
    gap: float = 0.0
    gap_2: float = 0.0
    distance: float = 0.0
    distance_2: float = 0.0

    def plus(self, other: Sums) -> Sums:
        return Sums._make(mine + theirs for mine, theirs in zip(self, other, strict=True))


def agreement(answer: Floats, shadow: Floats, top_k: int | None = None) -> Sums:
    """The sums of one request: scores (B,) of the version that answered, and of the one that shadows.

    `gap` is shadow minus answer, `distance` its size. The overlap is that of the best `top_k`, else of the best TOP,
    but of half of the rows at most: with all of them there is nothing to choose.
    """
    differences = shadow.astype(np.float64) - answer
    gap, distance = float(differences.mean()), float(np.abs(differences).mean())
    rows = len(answer)
    sums = Sums(requests=1, rows=rows, gap=gap, gap_2=gap * gap, distance=distance, distance_2=distance**2)
    if rows < 2:
        return sums
    orders = best_first(answer), best_first(shadow)
    shared = _overlap(*orders, max(1, min(top_k or TOP, rows // 2)))
    sums = sums._replace(topped=1, overlap=shared, overlap_2=shared * shared)
    rho = _correlation(_ranks(answer, orders[0]), _ranks(shadow, orders[1]))
    return sums if rho is None else sums._replace(ranked=1, rank=rho, rank_2=rho * rho)


def rank_correlation(left: Floats, right: Floats) -> float | None:
    """Spearman's rho; None where one side has a single value."""
    return _correlation(ranks(left), ranks(right))


def overlap(left: Floats, right: Floats, k: int) -> float:
    """The share of the best k rows that both have; of equal scores the earlier row is the better one."""
    return _overlap(best_first(left), best_first(right), k)


def ranks(scores: Floats) -> Ranks:
    """Ranks (B,) from 0, the best first; equal scores share the mean of theirs."""
    return _ranks(scores, best_first(scores))


def best_first(scores: Floats) -> Order:
    """The rows (B,) from the best to the worst, equal ones in their order."""
    return np.argsort(-scores, kind="stable")


def _overlap(left: Order, right: Order, k: int) -> float:
    return len(set(left[:k].tolist()) & set(right[:k].tolist())) / k


def _ranks(scores: Floats, order: Order) -> Ranks:
    """`ranks` of scores in that order."""
    ordered = scores[order]
    found = np.empty(len(scores))
    found[order] = np.arange(len(scores))
    if (ordered[1:] == ordered[:-1]).any():
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        counts = np.diff(np.append(starts, len(scores)))
        found[order] = np.repeat(starts + (counts - 1) / 2, counts)
    return found


def _correlation(left: Ranks, right: Ranks) -> float | None:
    middle = (len(left) - 1) / 2
    left, right = left - middle, right - middle
    scale = math.sqrt(float(left @ left) * float(right @ right))
    return float(left @ right) / scale if scale else None


def means(sums: Sums) -> dict[str, Any]:
    """What the sums say: means with 95 % intervals over requests, None where there is nothing to say."""
    told: dict[str, Any] = {"requests": sums.requests, "rows": sums.rows}
    told |= {"dropped": sums.dropped, "failed": sums.failed}
    told |= _mean("rank_correlation", sums.ranked, sums.rank, sums.rank_2)
    told |= _mean("top_k_overlap", sums.topped, sums.overlap, sums.overlap_2)
    told |= _mean("gap", sums.requests, sums.gap, sums.gap_2)
    return told | _mean("distance", sums.requests, sums.distance, sums.distance_2)


def _mean(name: str, count: int, total: float, squares: float) -> dict[str, Any]:
    if not count:
        return {name: None, f"{name}_interval": None}
    mean = total / count
    if count < 2:
        return {name: mean, f"{name}_interval": None}
    half = NORMAL * math.sqrt(max(0.0, squares - count * mean * mean) / (count - 1) / count)
    return {name: mean, f"{name}_interval": [mean - half, mean + half]}
