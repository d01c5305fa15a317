"""Captured requests and the clicks that were counted become rows to train on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.experiments.capture import SCHEMA
from service.experiments.events import click_key
from service.experiments.keys import Keyring
from service.experiments.prediction_id import Fields, seal
from service.join import Wish, join
from service.state import StateStore


def prediction(nonce: int) -> str:
    return seal(Keyring([b"0123456789abcdef"]), Fields("split", False, False, 0, 1, 0, int(time.time()), nonce))[0]


def captured(**more: Any) -> dict[str, Any]:
    row = {"prediction_id": prediction(1), "at": time.time() - 60, "unit": "aa", "experiment": "e", "version": "v1"}
    row |= {"epoch": 1, "reason": "split", "propensity": 0.5, "item": "i1", "shown": True, "features": "{}"}
    return {**row, "score": 0.5, **more}


def joined(
    tmp_path: Path,
    rows: list[dict[str, Any]],
    *clicks: tuple[str, str],
    state: str = "",
    output: str = "out.parquet",
    **wish: Any,
) -> list[dict[str, Any]]:
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), tmp_path / "captured-1-a.parquet")
    state = state or f"sqlite:///{tmp_path}/state.db"
    with StateStore.open(state) as store, store.transaction() as change:
        change.counts.take_keys({key for click in clicks if (key := click_key(*click)) is not None})
    assert join(Wish(tmp_path, state, tmp_path / output, **wish)) == 0
    return pq.read_table(tmp_path / output).to_pylist()


def test_a_click_marks_its_item_of_its_prediction_alone(tmp_path: Path, any_state: str) -> None:
    rows = [captured(prediction_id=prediction(n), item=item) for n in (1, 2) for item in ("i1", "i2")]
    found = joined(tmp_path, rows, (rows[0]["prediction_id"], "i1"), state=any_state)
    assert [row["clicked"] for row in found] == [1, 0, 0, 0]


def test_what_was_not_shown_is_no_row(tmp_path: Path) -> None:
    assert [row["item"] for row in joined(tmp_path, [captured(), captured(item="i2", shown=False)])] == ["i1"]


def test_features_are_columns_and_keep_their_types(tmp_path: Path) -> None:
    rows = [captured(features='{"age": 30, "genres": ["a"]}'), captured(features='{"age": 31}')]
    assert [(row["age"], row["genres"]) for row in joined(tmp_path, rows)] == [(30, ["a"]), (31, None)]


def test_the_folder_of_the_output_is_made(tmp_path: Path) -> None:
    assert len(joined(tmp_path, [captured()], output="served/new/rows.parquet")) == 1


def test_values_of_several_types_become_texts(tmp_path: Path) -> None:
    rows = [captured(features='{"code": 7}'), captured(features='{"code": "x"}')]
    assert [row["code"] for row in joined(tmp_path, rows)] == ["7", "x"]


def test_a_feature_keeps_its_name_beside_what_was_served(tmp_path: Path) -> None:
    (row,) = joined(tmp_path, [captured(features='{"version": "beta"}')])
    assert (row["version"], row["served_version"]) == ("beta", "v1")


@pytest.mark.parametrize(("age", "kept"), [(10, False), (600, True), (30 * 3600, False)])
def test_what_is_too_young_or_beyond_the_window_is_left_out(tmp_path: Path, age: float, kept: bool) -> None:
    rows = [captured(item="right", at=time.time() - 3600), captured(item="asked", at=time.time() - age)]
    found = joined(tmp_path, rows, settle=60.0)
    assert ("asked" in [row["item"] for row in found]) is kept


def test_an_item_gets_its_catalogs_features_where_they_were_not_sent(published: Path, tmp_path: Path) -> None:
    rows = [captured(features='{"item_id": "i1"}'), captured(item="i2", features='{"item_id": "i2", "price": 99}')]
    found = joined(tmp_path, rows, artifacts=published)
    assert [row["price"] for row in found] == [1.0, 99.0]


def test_a_feature_named_as_the_label_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.Table.from_pylist([captured(features='{"clicked": 1}')], SCHEMA), tmp_path / "captured-1.parquet")
    state = f"sqlite:///{tmp_path}/state.db"
    StateStore.open(state).close()
    assert join(Wish(tmp_path, state, tmp_path / "out.parquet")) == 1
    assert "'clicked'" in capsys.readouterr().err
