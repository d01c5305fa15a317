"""The works that bench_training.py measures: their rows and configs, made once into a folder."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 400_000  # generated: 87 steps of 4,096 in the training part
COLUMNS, NUMERICS, DIM = 26, 13, 16
ENCODED = 1_000_000  # rows of ten columns that `encode` encodes


@dataclass(frozen=True, slots=True)
class Work:
    """Rows of one kind and the model that learns from them."""

    name: str
    what: str
    width: int  # of the first layer's input
    ids: int = 0  # rows of the tables, where they are generated


WORKS = {
    "A": Work("A", "MovieLens-1M by time: 6 id columns × 16 and the year; wide: all and gender × occupation", 97),
    "B": Work("B", "26 id columns × 16 over 1,000,000 ids (Zipf 1.1), 13 numbers; wide: all ids", 429, 1_000_000),
    "C": Work("C", "the same over 10,000,000 ids", 429, 10_000_000),
}

TAIL = """
[model]
hidden = [256, 128, 64]
dropout = 0.0
[train]
batch_size = 4096
epochs = 1
wide_optimizer = "adagrad"
deep_optimizer = "{deep}"
"""


def make(work: Work, home: Path, movielens: Path | None) -> Path:
    """The folder of a work's rows and `config.toml`, written where it is not yet there."""
    folder = home / "data" / work.name
    if not (folder / "config.toml").exists():
        folder.mkdir(parents=True, exist_ok=True)
        if work.name == "A":
            assert movielens is not None, "work A needs --movielens"
            _movielens(movielens, folder)
        else:
            _generated(work, folder)
    return folder


def _movielens(raw: Path, folder: Path) -> None:
    command = ["-m", "training", "fetch", "movielens-1m", "--from", str(raw), "--out", str(folder)]
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    lines = ['[data]\nlabel = "clicked"\nitems = "items.parquet"\nitem = "item_id"\ntimestamp = "timestamp"']
    kind = "files" if (folder / "train").is_dir() else "time"
    lines.append(f'[split]\nkind = "{kind}"')
    for name in ("user_id", "gender", "age", "occupation"):
        lines.append(_feature(name, "categorical", side="user", dim=DIM, wide=True))
    lines.append(_feature("item_id", "categorical", side="item", dim=DIM, wide=True))
    lines.append(_feature("timestamp", "datetime", side="context", parts=["hour"], dim=DIM, wide=True))
    lines.append(_feature("year", "numeric", side="item"))
    lines.append('[[crosses]]\nof = ["gender", "occupation"]')
    (folder / "config.toml").write_text("\n".join(lines) + TAIL.format(deep="adam"), encoding="utf-8")


def _generated(work: Work, folder: Path) -> None:
    """Ids of Zipf's law, scattered; hashed into as many rows as there are ids, so that tables have them all."""
    draw, size = np.random.default_rng(0), work.ids // COLUMNS
    chances = np.cumsum(np.arange(1, size + 1, dtype=np.float64) ** -1.1)
    columns: dict[str, np.ndarray] = {}
    for n in range(COLUMNS):
        ranks = np.minimum(np.searchsorted(chances / chances[-1], draw.random(ROWS)), size - 1)
        columns[f"c{n}"] = draw.permutation(size)[ranks]
    numbers = draw.random((ROWS, NUMERICS), np.float32)
    columns |= {f"n{n}": numbers[:, n] for n in range(NUMERICS)}
    logits = numbers @ draw.normal(0, 0.5, NUMERICS) - 1
    columns["clicked"] = (draw.random(ROWS) < 1 / (1 + np.exp(-logits))).astype(np.int8)
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    lines = ['[data]\nlabel = "clicked"\n[split]\nkind = "random"']
    for n in range(COLUMNS):
        lines.append(_feature(f"c{n}", "categorical", side="context", dim=DIM, wide=True, buckets=size))
    lines += [_feature(f"n{n}", "numeric", side="context", scaler="none") for n in range(NUMERICS)]
    (folder / "config.toml").write_text("\n".join(lines) + TAIL.format(deep="adagrad"), encoding="utf-8")


def ten_columns(home: Path) -> Path:
    """A folder of ENCODED rows of five numbers, four integer categories and a text, with its config."""
    folder = home / "data" / "encode"
    if not (folder / "config.toml").exists():
        folder.mkdir(parents=True, exist_ok=True)
        draw = np.random.default_rng(0)
        columns: dict[str, np.ndarray | list[str]] = {f"n{n}": draw.random(ENCODED, np.float32) for n in range(5)}
        columns |= {f"c{n}": np.minimum(draw.zipf(1.3, ENCODED), 50_000) for n in range(4)}
        columns["c4"] = [f"v{n}" for n in draw.integers(0, 10_000, ENCODED)]
        columns["clicked"] = draw.integers(0, 2, ENCODED).astype(np.int8)
        pq.write_table(pa.table(columns), folder / "rows.parquet")
        lines = ['[data]\nlabel = "clicked"\n[split]\nkind = "random"']
        lines += [_feature(f"n{n}", "numeric", side="context") for n in range(5)]
        lines += [_feature(f"c{n}", "categorical", side="context") for n in range(5)]
        (folder / "config.toml").write_text("\n".join(lines) + TAIL.format(deep="adagrad"), encoding="utf-8")
    return folder


def _feature(name: str, kind: str, **keys: object) -> str:
    said = {"name": name, "kind": kind, **keys}
    return "\n".join(["[[features]]", *(f"{key} = {json.dumps(value)}" for key, value in said.items())])
