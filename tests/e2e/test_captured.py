"""What was served and clicked becomes a table to train on: capture, join, fit."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx
import pyarrow.parquet as pq

from tests.e2e.server import Service, serving

CONFIG = """
[data]
format = "parquet"
label = "clicked"
unit = "unit"
item = "item_id"
timestamp = "at"
[split]
kind = "random"
[[features]]
name = "age"
kind = "numeric"
side = "user"
[[features]]
name = "price"
kind = "numeric"
side = "item"
[model]
hidden = [8]
[train]
epochs = 1
"""
CLICKED = ("i3", "i7")


def serve_and_click(service: Service, requests: int) -> None:
    for n in range(requests):
        user = {"user_id": f"u{n % 20}", "age": 20 + n % 30}
        body = {"user": user, "candidates": [f"i{k}" for k in range(10)], "unit_id": f"u{n % 20}", "top_k": 8}
        answer = service.predict(body).json()
        shown = [one["item_id"] for one in answer["ranking"]]
        events = [
            {"prediction_id": answer["prediction_id"], "type": "click", "item_id": item, "event_id": f"{n}-{item}"}
            for item in shown
            if item in CLICKED
        ]
        assert httpx.post(f"{service.url}/feedback", json={"events": events}, timeout=30).status_code == 202


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=300, check=False)


def test_captured_requests_are_joined_with_their_clicks_and_trained_on(tiny_artifacts: Path, tmp_path: Path) -> None:
    captured, state = tmp_path / "captured", tmp_path / "service" / "state.db"
    options = ("--workers", "2", "--weights", "v3=1", "--load", "none", "--budget-ms", "5000")
    options += ("--capture", str(captured), "--capture-fraction", "1")
    with serving(tiny_artifacts, tmp_path / "service", *options) as service:
        serve_and_click(service, 60)
        assert service.stop() == 0
    table = tmp_path / "data" / "joined.parquet"
    table.parent.mkdir()
    command = ["service", "join", "--capture", str(captured), "--state", f"sqlite:///{state}", "--output", str(table)]
    done = run(*command, "--artifacts", str(tiny_artifacts))
    assert done.returncode == 0, done.stderr
    rows = pq.read_table(table).to_pylist()
    assert len(rows) == 60 * 8
    assert {row["item_id"] for row in rows if row["clicked"]} <= set(CLICKED)
    assert all(row["clicked"] == (row["item_id"] in CLICKED) for row in rows)
    assert {(row["item_id"], row["price"]) for row in rows} <= {(f"i{n}", float(n)) for n in range(10)}
    config = tmp_path / "config.toml"
    config.write_text(CONFIG)
    fit = ["training", "fit", "--config", str(config), "--data", str(table.parent), "--version", "next"]
    done = run(*fit, "--artifacts", str(tmp_path / "artifacts"), "--device", "cpu")
    assert done.returncode == 0, done.stderr


def test_a_join_without_anything_captured_is_one_plain_line(tmp_path: Path) -> None:
    begun = time.monotonic()
    state = f"sqlite:///{tmp_path}/none.db"
    done = run("service", "join", "--capture", str(tmp_path), "--state", state, "--output", str(tmp_path / "x.parquet"))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no file" in done.stderr
    assert not (tmp_path / "none.db").exists()
    assert time.monotonic() - begun < 60
