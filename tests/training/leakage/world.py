"""A made-up click log as real ones are, and what leaks into such logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from training.config import Config
from training.data import read_dataset
from training.leakage.report import LeakageReport, look_for_leaks

ROWS, USERS, ITEMS = 20_000, 600, 300
Columns = dict[str, npt.NDArray[Any]]


def clean(seed: int = 5, rows: int = ROWS) -> Columns:
    """Rows in time order, 12 % clicks; popularity is a power law, taste depends on user, item, hour and price."""
    random = np.random.default_rng(seed)
    user = random.integers(0, USERS, rows)
    item = np.minimum((ITEMS * random.random(rows) ** 2).astype(int), ITEMS - 1)
    time = np.sort(1_700_000_000 + random.integers(0, 60 * 86_400, rows))
    quality, keen = random.normal(0, 0.8, ITEMS), random.normal(0, 0.6, USERS)
    price = np.round(np.exp(random.normal(2, 1, ITEMS)), 2)
    logit = -2.6 + quality[item] + keen[user] + 0.4 * np.sin(time / 86_400 * 2 * np.pi) - 0.2 * np.log(price[item])
    clicked = random.random(rows) < 1 / (1 + np.exp(-logit))
    last_period = random.poisson(40 * np.exp(quality))  # of another month: honest
    return {
        "user_id": user,
        "item_id": item,
        "timestamp": time,
        "clicked": clicked.astype(np.int8),
        "age": 18 + random.integers(0, 50, USERS)[user],
        "city": np.array([f"c{n}" for n in random.zipf(1.6, USERS) % 40])[user],
        "price": price[item],
        "last_month": last_period[item].astype(np.int64),
        "position": 1 + random.integers(0, 20, rows),
        "seen_before": _seen_before(user, clicked),
    }


def click_count(rows: Columns) -> npt.NDArray[Any]:
    return np.bincount(rows["item_id"], rows["clicked"], ITEMS)[rows["item_id"]]


def next_click_time(rows: Columns) -> npt.NDArray[Any]:
    """When the same user clicks next, NaN where never again."""
    following = np.full(USERS, np.nan)
    found = np.empty(len(rows["clicked"]))
    for n in range(len(found) - 1, -1, -1):
        user = rows["user_id"][n]
        found[n] = following[user]
        if rows["clicked"][n]:
            following[user] = rows["timestamp"][n]
    return found


def noisy_copy(rows: Columns) -> npt.NDArray[Any]:
    flip = np.random.default_rng(1).random(len(rows["clicked"])) < 0.02
    return np.where(flip, 1 - rows["clicked"], rows["clicked"])


def target_mean(rows: Columns) -> npt.NDArray[Any]:
    counts = np.bincount(rows["user_id"], minlength=USERS)
    return (np.bincount(rows["user_id"], rows["clicked"], USERS) / np.maximum(counts, 1))[rows["user_id"]]


def dwell_time(rows: Columns) -> npt.NDArray[Any]:
    """Written after the click: seconds on the page, 0 where there was no click."""
    seconds = np.random.default_rng(2).lognormal(3, 1, len(rows["clicked"]))
    return np.where(rows["clicked"] == 1, np.round(seconds, 1), 0.0)


def config(extra: tuple[str, ...] = (), kind: str = "numeric", split: str = "time") -> Config:
    features: list[dict[str, Any]] = [
        {"name": "user_id", "kind": "categorical", "side": "user"},
        {"name": "age", "kind": "numeric", "side": "user"},
        {"name": "city", "kind": "categorical", "side": "user"},
        {"name": "item_id", "kind": "categorical", "side": "item"},
        {"name": "price", "kind": "numeric", "side": "item"},
        {"name": "last_month", "kind": "numeric", "side": "item"},
        {"name": "position", "kind": "numeric", "side": "context"},
        {"name": "seen_before", "kind": "numeric", "side": "user"},
        {"name": "timestamp", "kind": "datetime", "side": "context", "parts": ["hour"]},
    ]
    features += [{"name": name, "kind": kind, "side": "context"} for name in extra]
    data = {"unit": "user_id", "item": "item_id", "timestamp": "timestamp"}
    return Config.from_dict({"data": data, "split": {"kind": split}, "features": features})


def report(folder: Path, rows: Columns, made: Config, most: int = 1_000_000) -> LeakageReport:
    pq.write_table(
        pa.table({name: pa.array(values, from_pandas=True) for name, values in rows.items()}), folder / "rows.parquet"
    )
    data = read_dataset(folder / "rows.parquet", made, seed=1)
    return look_for_leaks(data, data.cut(made).parts(data.positions), made, most)


PLANTS: dict[str, Callable[[Columns], npt.NDArray[Any]]] = {
    "click_count": click_count,
    "log_click_count": lambda rows: np.log1p(click_count(rows)),
    "next_click_time": next_click_time,
    "until_next_click": lambda rows: next_click_time(rows) - rows["timestamp"],
    "noisy_copy": noisy_copy,
    "target_mean": target_mean,
    "dwell_time": dwell_time,
}


def _seen_before(user: npt.NDArray[Any], clicked: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Each user's clicks before the row: honest."""
    counts = np.zeros(USERS, np.int64)
    found = np.empty(len(user), np.int64)
    for n, (who, click) in enumerate(zip(user.tolist(), clicked.tolist(), strict=True)):
        found[n] = counts[who]
        counts[who] += click
    return found
