"""One feature and the label: what no honest feature knows alone.

A feature's score of a row is the rate of positives among the other half's rows of the same value (two halves in turn),
so that a value seen once says nothing about itself. Only training rows are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.scoring.encoded import Ints
from training import metrics
from training.leakage.finding import LEAK, NOTE, Finding
from training.leakage.sample import Column, Doubles, Sample, quantile_codes

Bools = npt.NDArray[np.bool_]

CERTAIN = 0.95  # an AUC that one honest feature does not reach in click data
HIGH = 0.8  # less is suspicious too, where it is far ahead of every unsuspicious feature:
AHEAD, FAR_AHEAD = 0.1, 0.15  # of note, and a leak
ID_CERTAIN = 0.985  # of a many-valued category: popularity alone is worth .93 where negatives are drawn evenly
DEPENDENT = 0.5  # share of the label's entropy that one feature explains
MANY_VALUES = 200
FEWEST = 50  # training rows, and positives at least a tenth of it: below, chance reaches any AUC
_DROP = "drop it, or make it from what was known before the row was shown"


@dataclass(frozen=True, slots=True)
class Strength:
    """What one feature tells of the label, alone."""

    column: Column
    auc: float
    explained: float  # share of the label's entropy
    presence: float  # AUC of being there at all
    present: tuple[float, float]  # share of negatives and of positives that have a value


def single_features(sample: Sample, seed: int) -> list[Finding]:
    """Features that know the label."""
    rows, labels = sample.train, sample.labels[sample.train]
    if len(rows) < FEWEST or min(labels.sum(), (~labels).sum()) < FEWEST // 10:
        return []
    halves = np.random.default_rng(seed).permutation(len(rows)) % 2
    strengths = [_strength(column, rows, labels, halves) for column in sample.columns]
    rest = max([s.auc for s in strengths if s.auc < HIGH], default=0.5)
    found = [_judge(strength, rest, sample) for strength in strengths]
    return [finding for finding in found if finding is not None]


def _judge(strength: Strength, rest: float, sample: Sample) -> Finding | None:
    name, auc = strength.column.name, strength.auc
    many = strength.column.numbers is None and int(strength.column.codes.max(initial=0)) >= MANY_VALUES
    if strength.presence >= 0.9:
        without, having = strength.present
        evidence = f"it has a value in {having:.1%} of positive rows and {without:.1%} of negative ones"
        return Finding(LEAK, "written after the label", name, evidence, _DROP)
    if many and auc < ID_CERTAIN:
        return None
    if strength.explained >= DEPENDENT:
        evidence = f"it alone explains {strength.explained:.0%} of the label's entropy (AUC {auc:.3f})"
        return Finding(LEAK, "derived from the label", name, evidence, _DROP)
    if auc >= CERTAIN or (auc >= HIGH and auc - rest >= AHEAD):
        evidence = f"it alone has AUC {auc:.3f}, the best unsuspicious feature {rest:.3f}"
        level = LEAK if auc >= CERTAIN or auc - rest >= FAR_AHEAD else NOTE
        return Finding(level, "single-feature AUC", name, evidence, _DROP)
    return None


def _strength(column: Column, rows: Ints, labels: Bools, halves: Ints) -> Strength:
    codes = quantile_codes(column, rows)
    scores = _crossed_rates(codes, labels, halves)
    auc = _auc(labels, scores, halves)
    base = metrics.logloss(labels, np.full(len(labels), labels.mean()))
    present = ~column.missing[rows]
    return Strength(
        column,
        auc,
        1 - metrics.logloss(labels, scores) / base,
        _auc(labels, _crossed_rates(present.astype(np.int64), labels, halves), halves),
        (float(present[~labels].mean()), float(present[labels].mean())),
    )


def _crossed_rates(codes: Ints, labels: Bools, halves: Ints) -> Doubles:
    """Rate of positives of each row's value among the other half's rows, drawn one row's weight to the base rate."""
    size = int(codes.max(initial=0)) + 1
    scores = np.empty(len(codes))
    for half in (0, 1):
        other = halves != half
        counts = np.bincount(codes[other], minlength=size)
        positives = np.bincount(codes[other], weights=labels[other], minlength=size)
        scores[~other] = ((positives + labels[other].mean()) / (counts + 1))[codes[~other]]
    return scores


def _auc(labels: Bools, scores: Doubles, halves: Ints) -> float:
    """Mean AUC inside the halves: the two tables of rates are not on one scale."""
    inside = [metrics.auc(labels[halves == half], scores[halves == half]) for half in (0, 1)]
    known = [value for value in inside if value is not None]
    return float(np.mean(known)) if known else 0.5
