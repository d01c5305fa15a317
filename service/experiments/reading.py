"""Evidence from the store: all that was counted of one experiment, at one moment."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from service.experiments.evidence import Arm, Epoch, Evidence, Hashes, Joined, no_counts
from service.experiments.joining import join
from service.state import Transaction
from service.state.counts import CellKey, Tallied
from service.traffic import shares_of

COUNTED = "split"
# After its end an epoch's requests are on their way for no longer.
SETTLED_SECONDS = 120.0
REMEMBERED = 200


def experiment_names(view: Transaction) -> list[str]:
    """Every experiment that there was, in the order of their names."""
    return sorted({row.traffic["experiment"] for row in view.history()})


class Reader:
    """Reads the evidence of any experiment, in one thread; what is long to read and old is remembered.

    The units of an epoch that ended a while ago do not change. Joined scores are given again as long as reading them
    anew would take more than a twentieth of the time.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._units: dict[int, dict[str, Hashes]] = {}
        self._joined: dict[str, tuple[float, tuple[Joined, ...]]] = {}

    def __call__(self, view: Transaction, name: str) -> Evidence | None:
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
        halvings = view.counts.halvings(numbers)
        epochs = tuple(
            _epoch(row, end, cells[row.epoch], self._units_of(view, row.epoch, end), 0.5 ** halvings.get(row.epoch, 0))
            for row, end in rows
        )
        return Evidence(name, rows[-1][0].traffic["default"] or "", epochs, self._joined_of(view, name))

    def _units_of(self, view: Transaction, epoch: int, ended: float | None) -> dict[str, Hashes]:
        """Sorted hashes by version."""
        units = self._units.get(epoch)
        if units is None:
            found: dict[str, list[int]] = defaultdict(list)
            for version, unit in view.counts.units(epoch):
                found[version].append(unit)
            units = {version: np.array(hashes, np.uint64) for version, hashes in found.items()}
            if ended is not None and self._now() - ended > SETTLED_SECONDS:
                if len(self._units) >= REMEMBERED:
                    self._units.clear()
                self._units[epoch] = units
        return units

    def _joined_of(self, view: Transaction, name: str) -> tuple[Joined, ...]:
        until, joined = self._joined.get(name, (0.0, ()))
        begun = time.monotonic()
        if begun >= until:
            joined = join(view.samples.kept(name), view.samples.seen(name))
            ended = time.monotonic()
            self._joined = {name: (ended + 19.0 * (ended - begun) if ended - begun > 0.1 else 0.0, joined)}
        return joined


def _epoch(
    row: Any,
    ended: float | None,
    cells: Sequence[tuple[CellKey, Tallied]],
    units: Mapping[str, Hashes],
    threshold: float,
) -> Epoch:
    shares = shares_of(row.traffic["weights"])
    uncounted: Counter[str] = Counter()
    arms = {version: Arm(version, share) for version, share in sorted(shares.items())}
    for key, tallied in cells:
        if key.reason != COUNTED:
            uncounted[key.reason] += tallied.predictions
    counted = [(key, tallied) for key, tallied in cells if key.reason == COUNTED]
    met = {key.version for key, _ in counted} | units.keys()
    for version in sorted(arms.keys() | met):
        arms[version] = _arm(version, shares.get(version, 0.0), counted, units.get(version))
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
