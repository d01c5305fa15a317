"""What one worker has answered since it was last written to the store: counts that add, and units that are new."""

from __future__ import annotations

from typing import NamedTuple

from service.experiments.samples import Answer
from service.experiments.units import Seen
from service.state.counts import CellKey

# Requests of an older epoch are on their way for seconds.
EPOCHS = 3


class Taken(NamedTuple):
    """What is to be written: cells as [predictions, errors], units by epoch, answers to be joined."""

    cells: dict[CellKey, list[int]]
    units: dict[int, list[tuple[str, int]]]
    answers: list[Answer]


class Tally:
    """Used from one event loop; the store is written elsewhere, with what `take` gave."""

    def __init__(self) -> None:
        self._cells: dict[CellKey, list[int]] = {}
        self._units: dict[int, Seen] = {}

    def count(self, key: CellKey, unit: int, *, failed: bool) -> None:
        """One request that was answered, or `failed`, for the arm that it was given to."""
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = [0, 0]
        cell[0] += 1
        cell[1] += failed
        if key.reason == "split":
            seen = self._units.get(key.epoch)
            if seen is None:
                seen = self._units[key.epoch] = Seen()
            seen.add(key.version, unit)

    def take(self, answers: list[Answer]) -> Taken:
        cells, self._cells = self._cells, {}
        units = {epoch: new for epoch, seen in self._units.items() if (new := seen.take())}
        return Taken(cells, units, answers)

    def written(self, halvings: dict[int, int]) -> None:
        """The store has what was taken; how often it has halved the units' samples by now."""
        for epoch, times in halvings.items():
            self._units[epoch].halve(times)
        for epoch in sorted(self._units)[:-EPOCHS]:
            del self._units[epoch]

    def give_back(self, taken: Taken) -> None:
        """The store could not be written: keep it for the next time."""
        for key, (predictions, errors) in taken.cells.items():
            cell = self._cells.setdefault(key, [0, 0])
            cell[0] += predictions
            cell[1] += errors
        for epoch, pairs in taken.units.items():
            self._units[epoch].give_back(pairs)
