"""Encoded rows and indexes in files that all processes of a host map: one copy in memory, however many read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from service.scoring.encoded import Bag, Encoded
from service.scoring.index import KeyColumn, KeyIndex


def save_index(index: KeyIndex, folder: Path) -> dict[str, Any]:
    """Write an index into an existing folder; what `map_index` needs beside it.

    Its keys hold good in this process and in those that were forked from the same one, see `index.py`.
    """
    np.save(folder / "keys.npy", index.keys)
    np.save(folder / "numbers.npy", index.values)
    return {"bits": index.bits, "reach": index.reach}


def map_index(folder: Path, state: dict[str, Any]) -> KeyIndex:
    return KeyIndex(_map(folder / "keys.npy"), _map(folder / "numbers.npy"), state["bits"], state["reach"])


def save_column(column: KeyColumn, folder: Path) -> dict[str, Any]:
    """Write a column with an index of its own."""
    return {**save_index(column.index, folder), "salt": column.salt, "integers": column.integers}


def map_column(folder: Path, state: dict[str, Any]) -> KeyColumn:
    return KeyColumn(map_index(folder, state), state["salt"], state["integers"])


def save_encoded(encoded: Encoded, folder: Path) -> dict[str, Any]:
    """Write rows into an existing folder; what `map_encoded` needs beside them."""
    np.save(folder / "numerics.npy", encoded.numerics)
    np.save(folder / "ids.npy", encoded.ids)
    for n, bag in enumerate(encoded.bags):
        np.save(folder / f"bag_{n}_values.npy", bag.values)
        np.save(folder / f"bag_{n}_offsets.npy", bag.offsets)
    return {"bags": len(encoded.bags), "unknown": encoded.unknown, "missing": encoded.missing}


def map_encoded(folder: Path, state: dict[str, Any]) -> Encoded:
    bags = tuple(
        Bag(_map(folder / f"bag_{n}_values.npy"), _map(folder / f"bag_{n}_offsets.npy")) for n in range(state["bags"])
    )
    return Encoded(
        _map(folder / "numerics.npy"), _map(folder / "ids.npy"), bags, dict(state["unknown"]), dict(state["missing"])
    )


def _map(path: Path) -> npt.NDArray[Any]:
    """The file's own pages; a private copy of one that somebody writes to, and nobody does."""
    loaded: npt.NDArray[Any] = np.load(path, mmap_mode="c")
    # The plain array: every operation on the subclass would ask again whether it is still a mapping.
    return loaded.view(np.ndarray)
