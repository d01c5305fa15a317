"""Request bodies of the work: several of each kind, all different, rotated by the load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.work import CATEGORIES, ITEMS, names

Json = dict[str, Any]
# Kind to (rows or candidates, different bodies). Each has a unit of its own: a split's shares need many of them.
KINDS = {
    "one_row": (1, 200),
    "rows_100": (100, 64),
    "rank_100": (100, 200),
    "rank_500": (500, 64),
    "rank_1000": (1000, 64),
}


def write_bodies(folder: Path) -> None:
    """folder/KIND/000.json and on."""
    draw = np.random.default_rng(2)
    for kind, (size, count) in KINDS.items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            text = json.dumps(body(draw, kind, size, number), separators=(",", ":"))
            (folder / kind / f"{number:03}.json").write_text(text, encoding="utf-8")


def read_bodies(folder: Path, kind: str) -> list[bytes]:
    return [file.read_bytes() for file in sorted((folder / kind).glob("*.json"))]


def body(draw: np.random.Generator, kind: str, size: int, number: int) -> Json:
    """One body: `size` whole rows of 39 named fields, or a user in a context with `size` item ids."""
    unit = f"unit-{number}"
    if kind.startswith("rank"):
        candidates = draw.integers(0, ITEMS, size).tolist()
        return {
            "user": values(draw, "user"),
            "context": values(draw, "context"),
            "candidates": candidates,
            "unit_id": unit,
        }
    return {"instances": [values(draw, "user", "context", "item") for _ in range(size)], "unit_id": unit}


def values(draw: np.random.Generator, *sides: str) -> Json:
    """Every feature of the sides: integers for categories, four decimals for numbers."""
    found: Json = {}
    for side in sides:
        categorical, numeric = names(side)
        found |= {name: int(draw.integers(0, CATEGORIES[name])) for name in categorical}
        found |= {name: round(float(draw.normal()), 4) for name in numeric}
    return found
