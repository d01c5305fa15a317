"""Made-up clicks with two training configs, and requests for the versions trained on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from service.scoring.predictor import RankRequest, RowRequest

ITEMS = 5_000

CONFIG = """
[data]
format = "parquet"
label = "clicked"
unit = "user_id"
item = "item_id"
items = "items.parquet"
timestamp = "shown_at"
[split]
kind = "time"
[[features]]
name = "user_id"
kind = "categorical"
side = "user"
dim = 16
[[features]]
name = "age"
kind = "numeric"
side = "user"
bins = [20, 30, 40, 50]
wide = true
[[features]]
name = "item_id"
kind = "categorical"
side = "item"
dim = 16
wide = true
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
[[features]]
name = "shown_at"
kind = "datetime"
side = "context"
parts = ["hour", "weekday"]
[model]
hidden = [256, 128, 64]
[train]
batch_size = 4096
epochs = 2
"""
CROSSES = '[[crosses]]\nof = ["age.bin", "genres"]\n[[crosses]]\nof = ["user_id", "genres"]\nbuckets = 10000\n'


def generate(folder: Path, rows: int) -> None:
    """events.parquet, items.parquet and the configs a.toml (no crosses) and b.toml (crosses)."""
    draw = np.random.default_rng(1)
    genres = [[f"g{g}" for g in draw.choice(20, 1 + n % 3, replace=False)] for n in range(ITEMS)]
    prices = np.round(draw.lognormal(3, 1, ITEMS), 2)
    users, items = draw.integers(0, 20_000, rows), draw.integers(0, ITEMS, rows)
    ages = 18 + users % 50
    liked = np.array([int(of[0][1:]) for of in genres])[items] % 5 == ages // 10 % 5  # crosses help
    clicked = (draw.random(rows) < np.where(liked, 0.7, 0.2)).astype(np.int8)
    shown_at = 1_700_000_000 + np.sort(draw.integers(0, 30 * 86_400, rows))
    events = {"user_id": users, "age": ages, "item_id": items, "shown_at": shown_at, "clicked": clicked}
    pq.write_table(pa.table(events), folder / "events.parquet")
    pq.write_table(pa.table({"item_id": np.arange(ITEMS), "price": prices, "genres": genres}), folder / "items.parquet")
    (folder / "a.toml").write_text(CONFIG, encoding="utf-8")
    (folder / "b.toml").write_text(CONFIG.replace("[model]", CROSSES + "[model]"), encoding="utf-8")


def ranking(candidates: int, user: int = 1) -> RankRequest:
    row = {"user_id": user, "age": 18 + user % 50}
    ids = list(np.random.default_rng(user).integers(0, ITEMS + 100, candidates).tolist())
    return RankRequest(user=row, context={"shown_at": 1_700_000_000}, candidates=ids)


def rows(count: int) -> RowRequest:
    draw = np.random.default_rng(count)
    return RowRequest(
        [
            {
                "user_id": int(draw.integers(0, 25_000)),
                "age": float(draw.integers(10, 90)),
                "item_id": int(draw.integers(0, ITEMS)),
                "price": float(draw.lognormal(3, 1)),
                "genres": [f"g{g}" for g in draw.choice(25, 2, replace=False)],
                "shown_at": 1_700_000_000 + int(draw.integers(0, 10**6)),
            }
            for _ in range(count)
        ]
    )
