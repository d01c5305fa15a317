"""Evidence from the store: all that was counted of one experiment, at one moment."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from service.experiments.evidence import Arm, Epoch, Evidence, Hashes, Joined, no_counts
from service.experiments.joining import join
from service.state import Transaction
from service.state.counts import CellKey, Tallied
from service.traffic import shares_of

COUNTED = "split"


def experiment_names(view: Transaction) -> list[str]:
    """Every experiment that there was, in the order of their names."""
    return sorted({row.traffic["experiment"] for row in view.history()})


def read_evidence(view: Transaction, name: str) -> Evidence | None:
    """All of one experiment; None where there was none of that name."""
    history = view.history()[::-1]
    ends: list[float | None] = [*(row.at for row in history[1:]), None]
    rows = [(row, end) for row, end in zip(history, ends, strict=True) if row.traffic["experiment"] == name]
    if not rows:
        return None
    numbers = {row.epoch for row, _ in rows}
    cells: dict[int, list[tuple[CellKey, Tallied]]] = defaultdict(list)
    for key, tallied in view.counts.cells(numbers):
        cells[key.epoch].append((key, tallied))
    units = _units(view.counts.units(numbers))
    halvings = view.counts.halvings(numbers)
    epochs = tuple(_epoch(row, end, cells[row.epoch], units, 0.5 ** halvings.get(row.epoch, 0)) for row, end in rows)
    return Evidence(name, rows[-1][0].traffic["default"] or "", epochs, _joined(view, name))


def _epoch(
    row: Any,
    ended: float | None,
    cells: Sequence[tuple[CellKey, Tallied]],
    units: Mapping[tuple[int, str], Hashes],
    threshold: float,
) -> Epoch:
    shares = shares_of(row.traffic["weights"])
    uncounted: Counter[str] = Counter()
    arms = {version: Arm(version, share) for version, share in sorted(shares.items())}
    for key, tallied in cells:
        if key.reason != COUNTED:
            uncounted[key.reason] += tallied.predictions
    counted = [(key, tallied) for key, tallied in cells if key.reason == COUNTED]
    met = {key.version for key, _ in counted} | {version for epoch, version in units if epoch == row.epoch}
    for version in sorted(arms.keys() | met):
        arms[version] = _arm(version, shares.get(version, 0.0), counted, units.get((row.epoch, version)))
    return Epoch(
        row.epoch,
        row.at,
        ended,
        row.traffic["coverage"],
        tuple(arms.values()),
        threshold=threshold,
        uncounted=dict(uncounted),
    )


def _arm(version: str, share: float, cells: Sequence[tuple[CellKey, Tallied]], units: Hashes | None) -> Arm:
    predictions, impressions, clicks, errors = no_counts(), no_counts(), no_counts(), 0
    for key, tallied in cells:
        if key.version == version:
            predictions[key.sub] = tallied.predictions
            impressions[key.sub] = tallied.impressions
            clicks[key.sub] = tallied.clicks
            errors += tallied.errors
    none = np.zeros(0, np.uint64)
    return Arm(version, share, predictions, impressions, clicks, errors, none if units is None else units)


def _units(rows: Sequence[tuple[int, str, int]]) -> dict[tuple[int, str], Hashes]:
    """Sorted hashes by epoch and version."""
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    for epoch, version, unit in rows:
        found[epoch, version].append(unit)
    return {arm: np.array(hashes, np.uint64) for arm, hashes in found.items()}


def _joined(view: Transaction, name: str) -> tuple[Joined, ...]:
    return join(view.samples.kept(name), view.samples.seen(name))
