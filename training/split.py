"""Which rows train, validate and test. A split is two cuts on one number per row, stored in the version and reused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from service.scoring.encoded import Ints
from training.config import SplitConfig
from training.errors import DataFault

PARTS = ("train", "valid", "test")


@dataclass(frozen=True, slots=True)
class Cuts:
    """Rows whose position is below `valid_from` train, below `test_from` validate, the others test.

    A position is epoch seconds (kind time), a seeded draw in [0, 1) for each row's number (random), or 0, 1, 2 (files).
    """

    kind: str
    valid_from: float
    test_from: float
    seed: int = 0
    gap: float = 0.0  # rows so near before a cut belong to no part

    def parts(self, positions: npt.NDArray[np.float64]) -> dict[str, Ints]:
        """Row numbers of each part, in the rows' order."""
        side = (positions >= self.valid_from).astype(np.int8) + (positions >= self.test_from)
        if self.gap:
            for cut_at in (self.valid_from, self.test_from):
                side[(positions >= cut_at - self.gap) & (positions < cut_at)] = -1
        return {name: np.flatnonzero(side == n) for n, name in enumerate(PARTS)}

    def to_dict(self) -> dict[str, Any]:
        """JSON values; null is a cut that no row reaches, as where there is no test part."""
        test_from = None if np.isinf(self.test_from) else self.test_from
        return {
            "kind": self.kind,
            "valid_from": self.valid_from,
            "test_from": test_from,
            "seed": self.seed,
            "gap": self.gap,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Cuts:
        test_from = float("inf") if values["test_from"] is None else float(values["test_from"])
        gap = float(values.get("gap", 0.0))  # versions of earlier releases have none
        return cls(str(values["kind"]), float(values["valid_from"]), test_from, int(values["seed"]), gap)


def draws(rows: int, seed: int) -> npt.NDArray[np.float64]:
    """Position of each row in a random split: row n's draw does not depend on how many rows follow it."""
    return np.random.Generator(np.random.Philox(seed)).random(rows)


def cut(split: SplitConfig, positions: npt.NDArray[np.float64], seed: int) -> Cuts:
    """Cut so that the last `test` and the `valid` before it hold at least those shares; ties go to the later part.

    Raises DataFault where a part would be empty.
    """
    if split.kind == "files":
        cuts = Cuts("files", 1, 2)
        for name, members in cuts.parts(positions).items():
            if not len(members):
                raise DataFault(f"the files of {name}/ hold no rows")
        return cuts
    rows = len(positions)
    test, valid = round(rows * split.test), round(rows * split.valid)
    if not valid or (split.test and not test) or test + valid >= rows:
        raise DataFault(
            f"too few rows for the split: {rows} rows cannot give {split.valid:g} to valid and {split.test:g} to test"
        )
    ordered = np.sort(positions)
    test_from = float(ordered[rows - test]) if test else float("inf")
    before = ordered[ordered < test_from]
    valid_from = float(ordered[rows - test - valid])
    if valid_from >= test_from:  # one tie reaches over both cuts: the rows just before it validate
        valid_from = float(before[max(0, len(before) - valid)]) if len(before) else test_from
    cuts = Cuts(split.kind, valid_from, test_from, seed if split.kind == "random" else 0, split.gap)
    for name, members in cuts.parts(positions).items():
        if not len(members) and (name != "test" or test):
            why = f"a gap of {split.gap:g} s leaves" if split.gap else "ties at the cuts leave"
            raise DataFault(f"too few rows for the split: with {rows} rows, {why} the {name} part empty")
    return cuts
