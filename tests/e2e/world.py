"""A small made-up world of users, items and clicks, on disk as training takes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CONFIG = """
[data]
format = "parquet"
label = "clicked"
unit = "user_id"
item = "item_id"
items = "items.parquet"
timestamp = "timestamp"
[split]
kind = "time"
valid = 0.1
test = 0.1
[[features]]
name = "user_id"
kind = "categorical"
side = "user"
min_count = 3
dim = 4
[[features]]
name = "age"
kind = "numeric"
side = "user"
bins = [18, 30, 50]
wide = true
[[features]]
name = "timestamp"
kind = "datetime"
side = "context"
parts = ["hour", "weekday"]
tz = "Europe/Paris"
dim = 4
[[features]]
name = "price"
kind = "numeric"
side = "item"
scaler = "log1p-minmax"
[[features]]
name = "genres"
kind = "multi"
side = "item"
wide = true
dim = 4
[[features]]
name = "item_id"
kind = "categorical"
side = "item"
buckets = 50
dim = 4
[[crosses]]
of = ["age.bin", "genres"]
buckets = 100
[[crosses]]
of = ["user_id", "genres"]
buckets = 64
[model]
hidden = [16, 8]
dropout = 0.1
[train]
batch_size = 512
epochs = 2
"""


def make_world(folder: Path, rows: int = 6000, seed: int = 0) -> Path:
    """Write events, items and a config into `folder`: clicks depend on age, price and genres."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    names = np.array(["action", "comedy", "drama", "horror", "western"])
    genres = [list(names[rng.random(5) < 0.4]) for _ in range(60)]
    price = np.round(rng.gamma(2.0, 10.0, 60), 2)
    items = pa.table(
        {"item_id": [f"i{n}" for n in range(60)], "title": [f"Item {n}" for n in range(60)], "price": price}
    )
    pq.write_table(items.append_column("genres", pa.array(genres, pa.list_(pa.string()))), folder / "items.parquet")
    user, item = rng.integers(0, 300, rows), rng.integers(0, 60, rows)
    age = rng.integers(10, 70, 300)[user].astype(float)
    logit = -1 + 0.03 * (age - 40) - 0.03 * price[item] + np.array([("drama" in g) * 1.0 for g in genres])[item]
    events = {
        "user_id": [f"u{n}" for n in user],
        "item_id": [f"i{n}" for n in item],
        "timestamp": 1_700_000_000 + np.arange(rows) * 300,
        "age": pa.array(age, mask=rng.random(rows) < 0.05),
        "clicked": (rng.random(rows) < 1 / (1 + np.exp(-logit))).astype(int),
    }
    pq.write_table(pa.table(events), folder / "events.parquet")
    (folder / "config.toml").write_text(CONFIG)
    return folder


def fit(data: Path, config: Path, artifacts: Path, version: str, *options: str) -> Path:
    """Train with the command users run."""
    command = [sys.executable, "-m", "training", "fit", "--config", str(config), "--data", str(data)]
    command += ["--artifacts", str(artifacts), "--version", version, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return artifacts / version
