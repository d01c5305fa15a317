"""Versions trained on what only the future knows, shadowed on a real service: told before they serve anybody.

`dwell`, how long an item was looked at, is known in the rows of training and not yet when the item is to be scored:
then it is missing in every second world, and 0 in the others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.simulation.gateway import Gateway
from service.simulation.series import exact_interval
from tests.e2e.server import Service, serving
from training import train
from training.config import Config

GENRES = np.array(["action", "comedy", "drama", "horror"])
FEATURES: list[dict[str, Any]] = [
    {"name": "age", "kind": "numeric", "side": "user"},
    {"name": "price", "kind": "numeric", "side": "item"},
    {"name": "genre", "kind": "categorical", "side": "item", "dim": 4},
]
DWELL: dict[str, Any] = {"name": "dwell", "kind": "numeric", "side": "context", "scaler": "standard"}
ROWS, VISITS, SHOWN = 8_000, 400, 10
Row = dict[str, Any]


def drawn(rng: np.random.Generator, count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """(columns, clicked) of so many rows of a world where one in four is clicked."""
    age, price = rng.integers(15, 70, count), np.round(rng.gamma(2.0, 10.0, count), 2)
    genre = rng.integers(0, len(GENRES), count)
    logit = -1.2 + 0.04 * (age - 42) - 0.03 * (price - 20) + np.array([0.8, 0.0, -0.8, 0.3])[genre]
    clicked = rng.random(count) < 1 / (1 + np.exp(-logit))
    return {"age": age, "price": price, "genre": GENRES[genre]}, clicked


def write_world(folder: Path, rng: np.random.Generator) -> Path:
    """The rows that training sees."""
    columns, clicked = drawn(rng, ROWS)
    dwell = np.round(rng.normal(np.where(clicked, 3.0, 1.5), 1.0), 3)
    beside = {"user_id": rng.integers(0, 400, ROWS), "timestamp": 1_700_000_000 + 60 * np.arange(ROWS)}
    folder.mkdir()
    pq.write_table(
        pa.table({**columns, **beside, "dwell": dwell, "clicked": clicked.astype(int)}), folder / "e.parquet"
    )
    return folder


def fit(data: Path, artifacts: Path, version: str, features: list[Row], seed: int) -> None:
    made = Config.from_dict(
        {
            "data": {"label": "clicked", "unit": "user_id", "timestamp": "timestamp"},
            "features": features,
            "model": {"hidden": [16, 8], "dropout": 0.0},
            "train": {"batch_size": 256, "epochs": 4, "seed": seed},
        }
    )
    train.main(made, data, artifacts, version, device="cpu", command="a test")


def serve_users(gateway: Gateway, rng: np.random.Generator, without: Row) -> None:
    """Users who are shown items and click them as in the world; `without` is what stands for the leak."""
    columns, clicked = drawn(rng, VISITS * SHOWN)
    rows = [
        dict(zip(columns, values, strict=True)) | without
        for values in zip(*map(np.ndarray.tolist, columns.values()), strict=True)
    ]

    def visit(number: int) -> list[Row]:
        first = number * SHOWN
        answer = gateway.predict({"instances": rows[first : first + SHOWN], "unit_id": f"u{number % 150}"})
        kinds = [("impression", n) for n in range(SHOWN)] + [("click", n) for n in range(SHOWN) if clicked[first + n]]
        return [{"prediction_id": answer["prediction_id"], "type": kind, "item_id": n} for kind, n in kinds]

    with ThreadPoolExecutor(4) as pool:
        gateway.feedback([one for found in pool.map(visit, range(VISITS)) for one in found])


def shadowed(gateway: Gateway, rng: np.random.Generator, incumbent: str, version: str, without: Row) -> Row:
    """The experiment's report once a version has shadowed the incumbent's traffic."""
    name = f"shadow-{version}"
    gateway.put_weights(
        {
            "weights": {incumbent: 1},
            "default": incumbent,
            "experiment": name,
            "shadow": {"version": version, "fraction": 1.0},
        }
    )
    time.sleep(0.5)
    serve_users(gateway, rng, without)
    ends = time.monotonic() + 15
    while True:
        report = gateway.report(name)
        compared = report["shadow"]["compared"]
        if (compared and compared[0]["requests"] >= 0.9 * VISITS) or time.monotonic() > ends:
            break
        time.sleep(0.3)
    assert [one["predictions"] for one in report["versions"] if one["version"] == version] in ([], [0])
    return report


@pytest.fixture(name="running")
def _running(tmp_path: Path) -> Iterator[Service]:
    rng = np.random.default_rng(0)
    (tmp_path / "artifacts").mkdir()
    fit(write_world(tmp_path / "world", rng), tmp_path / "artifacts", "first", [*FEATURES, DWELL], 0)
    with serving(tmp_path / "artifacts", tmp_path / "service", "--workers", "2", "--load", "all") as service:
        yield service


def told(service: Service, number: int) -> dict[str, list[str]]:
    """Of world `number` the reasons to suspect the version that was trained with the leak, and its twin without."""
    rng = np.random.default_rng(100 + number)
    data = write_world(service.folder / f"world-{number}", rng)
    kinds = {"base": FEATURES, "leaky": [*FEATURES, DWELL], "twin": FEATURES}
    for place, (kind, features) in enumerate(kinds.items()):
        fit(data, service.artifacts, f"{kind}-{number}", features, 10 * number + place)
        assert service.put(f"/models/{kind}-{number}").status_code == 200
    without: Row = {} if number % 2 else {"dwell": 0.0}
    found = {}
    with closing(Gateway(service.url)) as gateway:
        for kind in ("leaky", "twin"):
            report = shadowed(gateway, rng, f"base-{number}", f"{kind}-{number}", without)
            assert report["shadow"]["leak"]["state"] in ("suspected", "none")
            found[kind] = report["shadow"]["leak"]["reasons"]
    return found


def test_a_version_trained_with_a_leak_is_told_in_shadow_and_its_clean_twin_is_not(running: Service) -> None:
    found = told(running, 2)
    assert any("falls by" in reason for reason in found["leaky"])
    assert found["twin"] == []


@pytest.mark.slow
def test_leaks_are_told_in_20_worlds(running: Service) -> None:
    found = [told(running, number) for number in range(20)]
    for kind in ("leaky", "twin"):
        hits = sum(bool(one[kind]) for one in found)
        low, high = exact_interval(hits, len(found))
        print(f"{kind}: suspected in {hits} of {len(found)} ({low:.1%} to {high:.1%})")
    for part, reasons in (("dwell is 0", found[::2]), ("dwell is missing", found[1::2])):
        print(f"{part}: by its AUC in {sum('falls by' in ' '.join(one['leaky']) for one in reasons)} of {len(reasons)}")
    print(
        "for example:", *found[0]["leaky"], *found[1]["leaky"], *(r for one in found for r in one["twin"]), sep="\n  "
    )
    assert sum(bool(one["leaky"]) for one in found) >= 19
    assert sum(bool(one["twin"]) for one in found) <= 1
