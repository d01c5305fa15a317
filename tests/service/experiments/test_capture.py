"""What is captured of requests and answers, and that it never stands in the way."""

import asyncio
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from service.experiments import capture as capturing
from service.experiments.answered import Answered
from service.experiments.capture import Capture, hashed, rows_of
from service.scoring.predictor import RankRequest, RowRequest
from tests.service.workplace import settings, worker


class Counts:
    def __init__(self):
        self.found = {}

    def captured(self, result, requests):
        self.found[result] = self.found.get(result, 0) + requests


def answered(request, scores, **more):
    how = ("u1", "v1", "home", "split", 7, 0.5)
    return Answered(request, *how, np.array(scores, np.float32), "p1", **more)


ROWS = answered(RowRequest([{"age": 30}, {"age": 2**70}]), [0.25, 0.5])


def captured(folder, *answers, fraction=1.0):
    async def main():
        counts = Counts()
        async with Capture(folder, fraction, counts, clock=lambda: 1000.5) as capture:
            for one in answers:
                capture(one)
        return counts.found

    return asyncio.run(main())


def test_each_row_has_its_features_as_sent_and_its_score(tmp_path):
    assert captured(tmp_path, ROWS) == {"captured": 1}
    rows = pq.read_table(tmp_path).to_pylist()
    assert [(row["item"], json.loads(row["features"]), row["score"]) for row in rows] == [
        ("0", {"age": 30}, 0.25),
        ("1", {"age": 2**70}, 0.5),
    ]
    assert {key: rows[0][key] for key in ("prediction_id", "at", "version", "epoch", "propensity", "experiment")} == {
        "prediction_id": "p1",
        "at": 1000.5,
        "version": "v1",
        "epoch": 7,
        "propensity": 0.5,
        "experiment": "home",
    }


def test_a_candidate_carries_its_user_its_context_and_what_it_overrides():
    request = RankRequest({"age": 30}, ["i1", {"item_id": 7, "price": 2}], {"hour": 3})
    found = list(rows_of(answered(request, [0.1, 0.2], item_key="item_id"), 0.0))
    assert [row["item"] for row in found] == ["i1", "7"]
    assert json.loads(found[1]["features"]) == {"age": 30, "hour": 3, "item_id": 7, "price": 2}


def test_a_unit_is_hashed_and_never_written():
    (row, _) = rows_of(ROWS, 0.0)
    assert row["unit"] == hashed("u1")
    assert "u1" not in row["unit"]


def test_a_fraction_of_the_requests_is_captured(tmp_path):
    found = captured(tmp_path, *[ROWS] * 2000, fraction=0.25)
    assert 400 < found["captured"] < 600


def test_beyond_what_may_wait_requests_are_dropped_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(capturing, "MOST_ROWS", 5)
    assert captured(tmp_path, *[ROWS] * 4) == {"dropped": 2, "captured": 2}


def test_a_full_folder_is_counted_and_takes_no_more(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(b"1234")
    monkeypatch.setattr(capturing, "MOST_BYTES", 3)
    assert captured(tmp_path, ROWS) == {"failed": 1}


def test_a_folder_that_is_gone_is_counted(tmp_path):
    assert captured(tmp_path / "gone", ROWS) == {"failed": 1}


def test_a_file_appears_once_it_is_whole(tmp_path):
    captured(tmp_path, ROWS)
    assert [path.suffix for path in tmp_path.iterdir()] == [".parquet"]


def test_a_worker_writes_what_it_served(artifacts, tmp_path):
    async def main():
        folder = tmp_path / "captured"
        folder.mkdir()
        more = {"weights": {"v1": 1.0}, "load": "none", "capture": folder, "capture_fraction": 1.0}
        async with worker(settings(artifacts, tmp_path / "state.db", **more)) as one:
            given = [(await one.predict(f"u{n}")).json() for n in range(3)]
        rows = pq.read_table(folder).to_pylist()
        assert [row["prediction_id"] for row in rows] == [one["prediction_id"] for one in given]
        assert [row["score"] for row in rows] == pytest.approx([one["predictions"][0] for one in given])

    asyncio.run(main())
