"""The parts beside each other: rows that stand in both, units in both, values that moved, ids that name a row."""

from __future__ import annotations

import numpy as np

from service.scoring.encoded import Ints
from training.leakage.finding import LEAK, NOTE, Finding
from training.leakage.sample import Column, Doubles, Sample, quantile_codes

TWINS = 0.01  # share of judging rows that may have an exact twin in training
SHIFTED = 0.25  # population stability index from which a shift is called major
SINGLE = 0.95  # distinct values over rows from which a category names rows
FEWEST = 200  # judging rows below which shares say little


def duplicates(sample: Sample) -> list[Finding]:
    """Rows of the judging part that stand in the training part too."""
    if not len(sample.test) or not len(sample.train):
        return []
    columns = [column.codes for column in sample.columns]
    columns += [codes for codes in (sample.units, sample.items) if codes is not None]
    if sample.times is not None:
        columns.append(np.unique(sample.times, return_inverse=True)[1])
    marks = _row_marks(columns)
    seen = np.isin(marks[sample.test], marks[sample.train])
    full = marks * 2 + sample.labels
    twins = np.isin(full[sample.test], full[sample.train])
    share = float(twins.mean())
    # Rows of few columns agree by chance; then their labels differ as labels do, where copies agree in the label too.
    agree = float(twins[seen].mean()) if seen.any() else 0.0
    both = np.isin(full[sample.test] ^ 1, full[sample.train])
    if share < TWINS or twins.sum() < 5 or agree < 0.98 or float((both & twins).sum()) > 0.1 * twins.sum():
        return []
    evidence = f"{share:.1%} of the rows that judge ({twins.sum():,}) stand in the training part too, label and all"
    return [Finding(LEAK, "duplicates across the split", "", evidence, "remove repeated rows before the split")]


def shared_units(sample: Sample, kind: str) -> list[Finding]:
    """Under a split that does not follow time: units whose rows lie on both sides."""
    if sample.units is None or kind == "time" or not len(sample.test):
        return []
    judged = np.unique(sample.units[sample.test])
    judged = judged[judged >= 0]
    if not len(judged):
        return []
    share = float(np.isin(judged, sample.units[sample.train]).mean())
    if share < 0.05:
        return []
    evidence = f"{share:.0%} of the units that judge have rows in the training part"
    advice = "figures hold for known units; split by unit or by time to judge new ones"
    return [Finding(NOTE, "units on both sides", "", evidence, advice)]


def single_row_ids(sample: Sample, roles: frozenset[str]) -> list[Finding]:
    """Categories (and whole numbers) that are another one in nearly every row."""
    found = []
    for column in sample.columns:
        known = column.codes[~column.missing]
        if len(known) < FEWEST or column.kind not in ("categorical", "numeric") or column.name in roles:
            continue
        distinct = len(np.unique(known)) / len(known)
        if distinct < SINGLE or (column.numbers is not None and not _counts_rows(column.numbers)):
            continue
        evidence = f"{distinct:.1%} of its values are different ones: it names the row"
        found.append(Finding(NOTE, "id of single rows", column.name, evidence, "drop it: it can only be memorised"))
    return found


def shifted_values(sample: Sample, roles: frozenset[str]) -> list[Finding]:
    """Features whose values are others in the judging part (population stability index)."""
    if len(sample.test) < FEWEST or len(sample.train) < FEWEST:
        return []
    found = []
    for column in sample.columns:
        if column.name in roles or column.kind == "datetime":  # keys and times move by their nature
            continue
        index, chance, new = _stability(column, sample)
        if index < SHIFTED + 3 * chance:
            continue
        evidence = f"population stability index {index:.2f} between the training and the judging part"
        evidence += f"; {new:.0%} of judging rows have a value never seen in training" if new >= 0.01 else ""
        advice = "find out what changed; a value that grows with time should be made relative to the row's time"
        found.append(Finding(NOTE, "values shifted", column.name, evidence, advice))
    return found


def _stability(column: Column, sample: Sample) -> tuple[float, float, float]:
    """Index over tenths of a number, or the twenty most frequent values and the rest; what chance gives; new values.

    Chance: (bins − 1)·(1/n + 1/m) for n and m independent rows; rows of one unit or item are not independent.
    """
    both = np.concatenate([sample.train, sample.test])
    codes = quantile_codes(column, both, bins=10)
    train, test = codes[: len(sample.train)], codes[len(sample.train) :]
    size = int(codes.max()) + 1
    before, after = np.bincount(train, minlength=size), np.bincount(test, minlength=size)
    new = float(after[before == 0].sum() / len(test))
    top = np.argsort(-before, kind="stable")[:20]
    rest = np.setdiff1d(np.arange(size), top)
    p = _shares(np.append(before[top], before[rest].sum()))
    q = _shares(np.append(after[top], after[rest].sum()))
    groups = {"user": sample.units, "item": sample.items}.get(column.side)
    chance = (np.count_nonzero(p) - 1) * sum(1 / _independent(groups, rows) for rows in (sample.train, sample.test))
    return float(((q - p) * np.log(q / p)).sum()), chance, new


def _independent(groups: Ints | None, rows: Ints) -> float:
    """How many independent rows these are worth, where a group's rows all say the same."""
    if groups is None:
        return len(rows)
    counts = np.unique(groups[rows], return_counts=True)[1].astype(np.float64)
    return float(counts.sum() ** 2 / (counts**2).sum())


def _shares(counts: Ints) -> Doubles:
    return np.asarray((counts + 0.5) / (counts.sum() + 0.5 * len(counts)), np.float64)


def _counts_rows(numbers: Doubles) -> bool:
    """Whether whole numbers go up or down with the rows, as a running number does."""
    known = numbers[~np.isnan(numbers)]
    return bool((known == np.round(known)).all() and np.mean(np.diff(known) > 0) > 0.99)


def _row_marks(columns: list[Ints]) -> Ints:
    """A random-looking number for each distinct row; two rows collide with probability 2^-61."""
    random = np.random.default_rng(2)
    marks = np.zeros(len(columns[0]), np.int64)
    for codes in columns:
        words = random.integers(0, 2**61, int(codes.max(initial=0)) + 2, dtype=np.int64)
        marks = (marks + words[codes]) & ((1 << 61) - 1)
    return marks
