"""Running counts that have their own row's click in them: of use in a log, known only once the answer is."""

from __future__ import annotations

import numpy as np

from service.scoring.encoded import Ints
from training.leakage.finding import LEAK, Finding
from training.leakage.sample import Column, Sample

FEWEST = 50  # steps that can tell
OWN = 0.95  # share of them that go with the row's own label


def running_counts(sample: Sample) -> list[Finding]:
    """Columns that step up with each click of a user or item; the sample must hold all rows of its users or items."""
    if sample.times is None:
        return []
    found = []
    for column in sample.columns:
        if column.numbers is None or column.kind != "numeric":
            continue
        for name, codes in (("unit", sample.units), ("item", sample.items)):
            finding = None if codes is None else _own_step(sample, column, name, codes)
            if finding is not None:
                found.append(finding)
                break
    return found


def _own_step(sample: Sample, column: Column, key: str, codes: Ints) -> Finding | None:
    assert column.numbers is not None  # the caller chose a numeric one
    assert sample.times is not None  # as above
    rows = np.flatnonzero((codes >= 0) & ~column.missing)
    order = rows[np.lexsort((sample.times[rows], codes[rows]))]  # stable: rows of one second stay in their order
    before, after = order[:-1], order[1:]
    inside = codes[before] == codes[after]
    before, after = before[inside], after[inside]
    step = column.numbers[after] - column.numbers[before]
    own, last = sample.labels[after].astype(np.float64), sample.labels[before].astype(np.float64)
    # Only where the row's label is another than the row's before it can the two be told apart.
    telling = own != last
    if telling.sum() < FEWEST:
        return None
    share = float((step[telling] == own[telling]).mean())
    if share < OWN:
        return None
    evidence = f"it steps up with the row's own click in {share:.0%} of the rows of a {key} that can tell"
    advice = "count the rows before, without the row itself"
    return Finding(LEAK, "running count with its own row", column.name, evidence, advice)
