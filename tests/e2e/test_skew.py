"""Training/serving skew: raw rows score alike in the eager training model, `score` and every form of /predict."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from service.scoring.artifact import open_artifact
from tests.e2e.server import serving
from tests.e2e.world import fit, make_world
from training.export import eager_scores
from training.model import WideDeep


def eager(version: Path, table: pa.Table) -> np.ndarray:
    """The training model itself, with the published weights, on the rows as training encodes them."""
    artifact = open_artifact(version)
    config = artifact.manifest["training_config"]["model"]
    model = WideDeep(artifact.encoder.layout, tuple(config["hidden"]), config["dropout"])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.*", category=DeprecationWarning)
        saved = torch.jit.load(version / "model.pt").state_dict()
    # The exported module holds the model beside what it precomputes.
    model.load_state_dict({key[6:]: value for key, value in saved.items() if key.startswith("model.")})
    return np.array(eager_scores(model.eval(), artifact.encoder.encode_table(table)))


def offline(version: Path, table: pa.Table, folder: Path) -> np.ndarray:
    pq.write_table(table, folder / "rows.parquet")
    command = [sys.executable, "-m", "service", "score", "--artifact", str(version)]
    command += ["--input", str(folder / "rows.parquet"), "--output", str(folder / "scored.parquet")]
    subprocess.run(command, check=True, capture_output=True)
    scored = pq.read_table(folder / "scored.parquet")
    assert scored.column_names == [*table.column_names, "score"]
    return scored.column("score").to_numpy()


def raw_requests(table: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in names if name in row} for row in table.to_pylist()]


def check_no_skew(version: Path, events: pa.Table, items: pa.Table, folder: Path) -> None:
    schema = json.loads((version / "manifest.json").read_text())["schema"]
    sides = {feature["name"]: feature["side"] for feature in schema["features"]}
    full = join_items(events, items)
    wanted = eager(version, full)
    found = {"score": offline(version, full, folder)}
    rows = raw_requests(full, list(sides))
    with (
        serving(version.parent, folder / "service", "--workers", "2") as service,
        httpx.Client(base_url=service.url, timeout=60) as client,
    ):

        def ask(body: dict[str, Any]) -> list[float]:
            response = client.post("/predict", json={**body, "version": version.name})
            assert response.status_code == 200, response.text
            return list(response.json()["predictions"])

        found["rows alone"] = np.array([ask({"instances": [row]})[0] for row in rows])
        batches = [rows[n : n + 97] for n in range(0, len(rows), 97)]
        found["rows in batches"] = np.concatenate([ask({"instances": batch}) for batch in batches])
        found["ranking form"] = np.array(
            [ask(ranking(row, key, sides))[0] for row, key in zip(rows, keys(full), strict=True)]
        )
    for form, scores in found.items():
        off = float(np.abs(scores - wanted).max())
        print(f"{form}: {len(scores)} rows, worst difference {off:.2g}")
        assert off <= 1e-6, form


def join_items(events: pa.Table, items: pa.Table) -> pa.Table:
    place = {key: n for n, key in enumerate(items.column("item_id").to_pylist())}
    index = pa.array([place[key] for key in keys(events)])
    for name in items.column_names:
        if name not in events.column_names:
            events = events.append_column(name, items.column(name).take(index))
    return events


def keys(table: pa.Table) -> list[Any]:
    return table.column("item_id").to_pylist()


def ranking(row: dict[str, Any], key: Any, sides: dict[str, str]) -> dict[str, Any]:
    parts = {side: {name: row[name] for name in row if sides[name] == side} for side in ("user", "context")}
    return {**parts, "candidates": [key]}


def test_en03_two_hundred_rows_score_alike_on_every_path(tmp_path: Path) -> None:
    data = make_world(tmp_path / "data")
    version = fit(data, data / "config.toml", tmp_path / "artifacts", "v1")
    events = pq.read_table(data / "events.parquet")
    events = events.take(pa.array(np.random.default_rng(2).choice(events.num_rows, 200, replace=False)))
    check_no_skew(version, events, pq.read_table(data / "items.parquet"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("config", ["v1", "v2"])
def test_a_thousand_rows_of_movielens_score_alike_on_every_path(config: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [sys.executable, "-m", "training", "fetch", "movielens-100k", "--out", str(data)]
    subprocess.run(command, check=True, capture_output=True)
    version = fit(data, data / f"{config}.toml", tmp_path / "artifacts", config)
    events = pq.read_table(data / "events.parquet")
    events = events.take(pa.array(np.random.default_rng(3).choice(events.num_rows, 1000, replace=False)))
    check_no_skew(version, events, pq.read_table(data / "items.parquet"), tmp_path)
