"""Batch scoring and verification from the command line's functions."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service import offline
from service.offline import score, verify
from service.scoring.artifact import open_artifact
from service.scoring.predictor import RowRequest
from tests.tiny import ITEMS, USERS, publish_tiny, rows


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_tiny(tmp_path_factory.mktemp("artifacts"))


def written(folder: Path, table: pa.Table) -> Path:
    pq.write_table(table, folder / "in.parquet")
    return folder / "in.parquet"


def test_score_adds_a_column_block_by_block(version: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "BATCH_ROWS", 7)
    table = pa.Table.from_pylist(rows())
    assert score(version, written(tmp_path, table), tmp_path / "out.parquet", device="cpu") == 0
    scored = pq.read_table(tmp_path / "out.parquet")
    predictor = open_artifact(version).predictor
    wanted = predictor.scores_of(RowRequest(rows()))
    assert scored.drop(["score"]).equals(table)
    assert scored.column("score").to_pylist() == pytest.approx(wanted.tolist(), abs=1e-6)


def test_score_takes_absent_item_features_from_the_catalog(version: Path, tmp_path: Path) -> None:
    events = pa.Table.from_pylist([{**user, "item_id": item["item_id"]} for user in USERS for item in ITEMS])
    assert score(version, written(tmp_path, events), tmp_path / "out.parquet", device="cpu") == 0
    predictor = open_artifact(version).predictor
    wanted = predictor.scores_of(RowRequest(rows()))
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column_names == [*events.column_names, "score"]
    assert found.column("score").to_pylist() == pytest.approx(wanted.tolist(), abs=1e-6)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"age": ["1"] * 9 + ["old"]}, "column 'age', row 10: 'old' is no number"),
        ({"score": [1.0]}, "a column 'score' already"),
    ],
)
def test_a_bad_file_is_one_plain_line_and_writes_nothing(
    version: Path,
    tmp_path: Path,
    table: dict[str, list[object]],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offline, "BATCH_ROWS", 4)
    source = written(tmp_path, pa.table(table))
    assert score(version, source, tmp_path / "out.parquet", device="cpu") == 1
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_what_is_no_parquet_is_one_plain_line(
    version: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.parquet").write_text("a,b\n1,2\n")
    assert score(version, tmp_path / "in.parquet", tmp_path / "out.parquet", device="cpu") == 1
    error = capsys.readouterr().err
    assert "in.parquet" in error
    assert error.count("\n") == 1


def test_verify_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    version = publish_tiny(tmp_path)
    assert verify(version) == 0
    (version / "exam.json").write_text("{}")
    assert verify(version) == 1
    assert "exam.json: its sha256" in capsys.readouterr().err
