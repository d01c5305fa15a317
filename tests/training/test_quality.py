"""The demo's quality: three seeds of both versions above what counting alone reaches on the same rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from service.scoring.artifact import open_artifact
from service.scoring.predictor import RankRequest
from training.metrics import evaluate

SMOOTHING = 5.0
SEEDS = (1, 2, 3)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("movielens")
    command = [sys.executable, "-m", "training", "fetch", "movielens-100k", "--out", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def artifacts(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("artifacts")
    for config in ("v1", "v2"):
        for seed in SEEDS:
            command = [sys.executable, "-m", "training", "fit", "--config", str(data / f"{config}.toml")]
            command += ["--data", str(data), "--artifacts", str(root), "--version", f"{config}-{seed}"]
            subprocess.run([*command, "--seed", str(seed)], check=True, capture_output=True)
    return root


def smoothed_rate(keys: np.ndarray, clicks: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Each row's key's click rate over the `seen` rows, drawn towards the mean by SMOOTHING rows."""
    _, codes = np.unique(keys, return_inverse=True)
    count = np.bincount(codes[seen], minlength=codes.max() + 1)
    clicked = np.bincount(codes[seen], weights=clicks[seen], minlength=codes.max() + 1)
    mean = clicks[seen].mean()
    return ((clicked + SMOOTHING * mean) / (count + SMOOTHING))[codes]


def floors(data: Path, split: dict[str, float]) -> dict[str, float]:
    """Test AUC of counting on the training part: item rate + user rate, and the item rate alone."""
    events = pq.read_table(data / "events.parquet")
    times = events.column("timestamp").cast("int64").to_numpy()
    clicks = events.column("clicked").to_numpy().astype(float)
    train, test = times < split["valid_from"], times >= split["test_from"]
    item = smoothed_rate(events.column("item_id").to_numpy(), clicks, train)
    user = smoothed_rate(events.column("user_id").to_numpy(), clicks, train)
    return {
        "item + user": evaluate(clicks[test], ((item + user) / 2)[test], None)["auc"],
        "item": evaluate(clicks[test], item[test], None)["auc"],
    }


def manifest(version: Path) -> dict[str, object]:
    return dict(json.loads((version / "manifest.json").read_text()))


@pytest.mark.parametrize("config", ["v1", "v2"])
def test_the_mean_of_three_seeds_beats_the_counts(config: str, data: Path, artifacts: Path) -> None:
    found = [manifest(artifacts / f"{config}-{seed}") for seed in SEEDS]
    counts = floors(data, found[0]["split"])  # type: ignore[arg-type]  # a manifest's own
    aucs = [one["metrics"]["test"]["auc"] for one in found]  # type: ignore[index]  # as above
    print(f"{config}: test AUC {np.mean(aucs):.4f} (seeds {', '.join(f'{auc:.4f}' for auc in aucs)}); counts {counts}")
    assert np.mean(aucs) > counts["item + user"]


@pytest.mark.parametrize("config", ["v1", "v2"])
def test_en04_an_unknown_item_with_liked_genres_and_year_outscores_one_with_disliked_ones(
    config: str, data: Path, artifacts: Path
) -> None:
    events, items = pq.read_table(data / "events.parquet"), pq.read_table(data / "items.parquet").to_pylist()
    clicks = events.column("clicked").to_numpy().astype(float)
    rate = smoothed_rate(events.column("item_id").to_numpy(), clicks, np.ones(len(clicks), bool))
    liked = dict(zip(events.column("item_id").to_pylist(), rate.tolist(), strict=True))
    ranked = sorted((item for item in items if item["item_id"] in liked), key=lambda item: liked[item["item_id"]])
    user = {"user_id": "nobody", "age": 30, "gender": "M", "occupation": "student"}
    for seed in SEEDS:
        predictor = open_artifact(artifacts / f"{config}-{seed}").predictor

        def mean_score(chosen: list[dict[str, object]]) -> float:
            unknown = [
                {"item_id": f"new-{n}", "genres": item["genres"], "year": item["year"]} for n, item in enumerate(chosen)
            ]
            batch = predictor.encode([RankRequest(user, unknown)])  # noqa: B023 - called in this turn of the loop
            assert batch.strangers() == [len(unknown)]
            return float(predictor.score(batch)[0].mean())  # noqa: B023 - as above

        assert mean_score(ranked[-100:]) > mean_score(ranked[:100])
