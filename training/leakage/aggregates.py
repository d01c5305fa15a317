"""Counts and means per user, item or category that include a row's own label, or rows still to come.

A number that is one and the same in all rows of an item may be honest (its price). It is a count of this very file's
labels where it lies closer to it than chance lets any other number lie: a count of another period differs from c by
about √c, a rate by √(p(1−p)/n). `distance` below is the mean square of that; 1 and more is honest, 0 is a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from service.scoring.encoded import Ints
from training.leakage.finding import LEAK, Finding
from training.leakage.sample import TRAIN, Column, Doubles, Sample

COPY = 0.05  # the greatest distance of a copy
FEWEST_GROUPS, FEWEST_VALUES = 20, 5
CONSTANT = 0.99  # share of groups in which the number is one and the same
_EARLIER = "make it from earlier rows alone, up to each row's own time"


@dataclass(frozen=True, slots=True)
class Groups:
    """Per group of some key: rows and positives of all parts and of the training part, and the feature's value."""

    values: Doubles
    rows: Doubles
    positives: Doubles
    train_rows: Doubles
    train_positives: Doubles


def aggregates(sample: Sample) -> list[Finding]:
    """Features that are a count or a mean over the file; one finding a feature."""
    found = []
    keys = list(sample.keys())
    for column in sample.columns:
        if column.numbers is None or column.kind != "numeric":
            continue
        for name, codes in keys:
            finding = _aggregate(sample, column, name, codes) or _changes_with_label(sample, column, name, codes)
            if finding is not None:
                found.append(finding)
                break
    return found


def _aggregate(sample: Sample, column: Column, key: str, codes: Ints) -> Finding | None:
    groups = _groups(sample, column, codes)
    if groups is None:
        return None
    # What a column may copy, the likeliest first; a training-only count is a copy of its own label, not of the future.
    for what, counted, in_train in (
        ("clicks", groups.positives, groups.train_positives),
        ("rows", groups.rows, groups.train_rows),
    ):
        whole, past = _count_distance(groups.values, counted), _count_distance(groups.values, in_train)
        if whole < COPY and whole < past / 4:
            evidence = f"it follows the number of {what} of its {key} in the whole file, later rows too"
            evidence += f" (distance {whole:.3f}; to the training part's alone {past:.2f}; honest is about 1)"
            return Finding(LEAK, "count over the whole file", column.name, evidence, _EARLIER)
        if what == "clicks" and min(whole, past) < COPY:
            evidence = f"it follows the number of clicks of its {key}, the row's own among them (distance {past:.3f})"
            return Finding(LEAK, "count with the row's own label", column.name, evidence, _EARLIER)
    for where, rows, positives in (
        ("training part", groups.train_rows, groups.train_positives),
        ("whole file", groups.rows, groups.positives),
    ):
        distance = _rate_distance(groups.values, rows, positives)
        if distance < COPY:
            evidence = f"it is the rate of positives of its {key} in the {where}, the row's own label in it"
            return Finding(
                LEAK, "target mean with its own row", column.name, f"{evidence} (distance {distance:.3f})", _EARLIER
            )
    return None


def _groups(sample: Sample, column: Column, codes: Ints) -> Groups | None:
    """None where the column is not one number a group, or there is too little to tell."""
    assert column.numbers is not None  # the caller chose a numeric one
    known = np.flatnonzero((codes >= 0) & ~column.missing)
    if len(known) < FEWEST_GROUPS:
        return None
    group, values = codes[known], column.numbers[known]
    size = int(group.max()) + 1
    counts = np.bincount(group, minlength=size)
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, group, values)
    np.maximum.at(high, group, values)
    several = counts > 1
    if not several.any() or (low[several] == high[several]).mean() < CONSTANT:
        return None
    keep = (counts > 0) & (low == high)
    labels, train = sample.labels[known].astype(np.float64), sample.part[known] == TRAIN
    whole = (np.bincount(group, minlength=size), np.bincount(group, labels, size))
    past = (np.bincount(group, train, size), np.bincount(group, labels * train, size))
    if keep.sum() < FEWEST_GROUPS or len(np.unique(low[keep])) < FEWEST_VALUES:
        return None
    return Groups(low[keep], *(array[keep].astype(np.float64) for array in (*whole, *past)))


def _shapes(values: Doubles) -> Iterator[Doubles]:
    """The number itself and what undoes a logarithm or a root; any linear scaling is found by the fit."""
    yield values
    if values.max() < 40:
        yield np.exp(values)
    if values.min() >= 0:
        yield values**2


def _count_distance(values: Doubles, counts: Doubles) -> float:
    """Least mean of (c − ĉ)² / c over the shapes, ĉ linear in the number; over a constant's where that is small."""
    if len(np.unique(counts)) < FEWEST_VALUES:
        return np.inf
    weights = 1 / np.sqrt(np.maximum(counts, 1))
    null = _residual(np.zeros((len(counts), 0)), counts, weights)
    best = min(_residual(shape[:, None], counts, weights) for shape in _shapes(values))
    return best / min(1.0, null) if null > 0 else np.inf


def _rate_distance(values: Doubles, rows: Doubles, positives: Doubles) -> float:
    """Mean of (f − rate)² over the rate's variance, scaling and smoothing undone.

    f = s·(k + a·p) / (n + a) is k linear in f·n and f.
    """
    seen = rows > 0
    values, rows, positives = values[seen], rows[seen], positives[seen]
    if len(values) < FEWEST_GROUPS or len(np.unique(values)) < FEWEST_VALUES:
        return np.inf
    base = positives.sum() / rows.sum()
    spread = np.sqrt(rows * max(base * (1 - base), 1e-9))
    weights = 1 / spread
    distance = _residual(np.column_stack([values * rows, values]), positives, weights)
    # A column without any bearing on the label lies as far away as a constant does, and further where scales differ.
    null = float(np.mean(((positives - base * rows) * weights) ** 2))
    return distance / min(1.0, null) if null > 0 else np.inf


def _residual(columns: Doubles, target: Doubles, weights: Doubles) -> float:
    """Weighted mean square of what a linear fit with a constant leaves over."""
    design = np.column_stack([np.ones(len(target)), columns])
    scale = np.abs(design).max(0)
    design = design / np.where(scale > 0, scale, 1.0)
    fitted = np.linalg.lstsq(design * weights[:, None], target * weights, rcond=None)[0]
    return float(np.mean(((target - design @ fitted) * weights) ** 2))


def _changes_with_label(sample: Sample, column: Column, key: str, codes: Ints) -> Finding | None:
    """One value in all of a group's negatives, another in all its positives: so does a mean without the own row."""
    assert column.numbers is not None  # the caller chose a numeric one
    rows = sample.train[(codes[sample.train] >= 0) & ~column.missing[sample.train]]
    if len(rows) < FEWEST_GROUPS:
        return None
    place = codes[rows] * 2 + sample.labels[rows]
    size = (int(codes.max()) + 1) * 2
    counts = np.bincount(place, minlength=size).reshape(-1, 2)
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, place, column.numbers[rows])
    np.maximum.at(high, place, column.numbers[rows])
    both = (counts >= 2).all(1)
    if both.sum() < FEWEST_GROUPS:
        return None
    low, high = low.reshape(-1, 2)[both], high.reshape(-1, 2)[both]
    share = float(((low == high).all(1) & (low[:, 0] != low[:, 1])).mean())
    if share < 0.5:
        return None
    evidence = f"in {share:.0%} of the groups by {key} it has one value where the label is 0, another where it is 1"
    return Finding(LEAK, "changes with the label", column.name, evidence, _EARLIER)
