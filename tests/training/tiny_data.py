"""Small made-up click data and configs for the tests of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from training import train
from training.config import Config

FEATURES: list[dict[str, Any]] = [
    {"name": "user_id", "kind": "categorical", "side": "user", "wide": True},
    {"name": "age", "kind": "numeric", "side": "user", "bins": [20, 30, 40], "wide": True},
    {"name": "item_id", "kind": "categorical", "side": "item", "min_count": 2, "wide": True},
    {"name": "genres", "kind": "multi", "side": "item", "dim": 4, "wide": True},
    {"name": "price", "kind": "numeric", "side": "item"},
    {"name": "timestamp", "kind": "datetime", "side": "context", "parts": ["hour", "weekday"], "dim": 4},
]
CROSSES: list[dict[str, Any]] = [{"of": ["age.bin", "genres"]}, {"of": ["user_id", "item_id", "genres"], "buckets": 97}]
TABLES: dict[str, Any] = {
    "data": {"unit": "user_id", "item": "item_id", "items": "items.parquet", "timestamp": "timestamp"},
    "features": FEATURES,
    "crosses": CROSSES,
    "model": {"hidden": [16, 8], "dropout": 0.1},
    "train": {"batch_size": 64, "epochs": 3},
}


def tables(**changes: dict[str, Any]) -> dict[str, Any]:
    """The tables of a config; a section given replaces the keys it names (None drops a key)."""
    changed = {name: section if isinstance(section, list) else dict(section) for name, section in TABLES.items()}
    for name, section in changes.items():
        if isinstance(section, list):
            changed[name] = section
        else:
            merged = {**changed.get(name, {}), **section}
            changed[name] = {key: value for key, value in merged.items() if value is not None}
    return changed


def config(**changes: Any) -> Config:
    return Config.from_dict(tables(**changes))


def items(count: int = 30) -> pa.Table:
    random = np.random.default_rng(7)
    return pa.table(
        {
            "item_id": [f"i{n}" for n in range(count)],
            "title": [f"Item {n}" for n in range(count)],
            "genres": [[f"g{g}" for g in sorted(random.choice(5, 1 + n % 3, replace=False))] for n in range(count)],
            "price": np.round(random.uniform(1, 100, count), 2),
        }
    )


def clicks(rows: int = 600, users: int = 40, item_count: int = 30) -> pa.Table:
    """Rows in time order; odd items are liked, cheap to learn."""
    random = np.random.default_rng(11)
    item = random.integers(0, item_count, rows)
    user = random.integers(0, users, rows)
    chance = np.where(item % 2 == 1, 0.75, 0.25)
    return pa.table(
        {
            "user_id": user,
            "item_id": [f"i{n}" for n in item],
            "age": 15 + user % 40,
            "timestamp": 1_700_000_000 + 3_607 * np.arange(rows),
            "clicked": (random.random(rows) < chance).astype(np.int8),
        }
    )


def write_data(folder: Path, rows: pa.Table | None = None) -> Path:
    """events.parquet and items.parquet in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(clicks() if rows is None else rows, folder / "events.parquet")
    pq.write_table(items(), folder / "items.parquet")
    return folder


def fit(made: Config, data: Path, artifacts: Path, version: str = "v1") -> Path:
    return train.main(made, data, artifacts, version, device="cpu", command="a test")


def visible(artifacts: Path) -> list[str]:
    """What a listing would show."""
    return (
        sorted(path.name for path in artifacts.glob("*") if not path.name.startswith(".")) if artifacts.exists() else []
    )
