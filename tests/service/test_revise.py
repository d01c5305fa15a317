"""The command that adds a catalog revision: what it writes, and every mistake that makes it write nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service import revise as revising
from service.__main__ import main
from service.offline import verify
from service.revise import revise
from service.scoring.files import sha256
from service.scoring.revisions import revision_numbers
from tests.tiny import FEATURES, add_revision, publish_tiny, tiny_encoder

NEW = {"item_id": "new", "price": 3.0, "genres": ["a", "b"]}


@pytest.fixture(scope="module", name="published")
def _published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_tiny(tmp_path_factory.mktemp("artifacts"))


@pytest.fixture
def version(published: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "v1"))


def written(folder: Path, items: list[dict[str, Any]] | pa.Table) -> Path:
    pq.write_table(items if isinstance(items, pa.Table) else pa.Table.from_pylist(items), folder / "items.parquet")
    return folder / "items.parquet"


def files(version: Path) -> dict[str, str]:
    return {str(path.relative_to(version)): sha256(path) for path in version.rglob("*") if path.is_file()}


def prices(version: Path, revision: int) -> dict[str, float]:
    table = pq.read_table(version / "catalogs" / f"{revision}.parquet")
    return dict(zip(table.column("item_id").to_pylist(), table.column("price").to_pylist(), strict=True))


def test_a_revision_is_told_on_one_line(version: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = written(tmp_path, [NEW, {"item_id": "i1", "price": 7.0, "genres": ["a"]}])
    command = ["catalog", "--artifact", str(version), "--items", str(source)]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"version": "v1", "revision": 1, "rows": 21, "added": 1, "changed": 1, "removed": 0}


def test_the_record_holds_hash_rows_and_time(version: Path):
    add_revision(version, [NEW])
    record = json.loads((version / "catalogs" / "1.json").read_text())
    assert set(record) == {"sha256", "rows", "created"}
    assert (record["sha256"], record["rows"]) == (sha256(version / "catalogs" / "1.parquet"), 21)


def test_nothing_that_the_manifest_lists_is_touched(version: Path):
    before = files(version)
    add_revision(version, [NEW])
    assert {name: digest for name, digest in files(version).items() if not name.startswith("catalogs/")} == before


def test_each_revision_builds_on_the_newest(version: Path):
    add_revision(version, [{"item_id": "i1", "price": 7.0}])
    add_revision(version, [{"item_id": "i2", "price": 8.0}])
    found = prices(version, 2)
    assert (found["i1"], found["i2"], found["i3"]) == (7.0, 8.0, 3.0)
    assert prices(version, 1)["i2"] == 2.0


def test_replace_keeps_the_files_items_alone(version: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert revise(version, written(tmp_path, [NEW, {**NEW, "item_id": "i1"}]), replace=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["added"], told["changed"], told["removed"]) == (2, 1, 1, 19)
    assert prices(version, 1) == {"new": 3.0, "i1": 3.0}


def test_an_absent_feature_column_is_warned_of(version: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = written(tmp_path, [{"item_id": "i1", "price": 7.0}])
    assert revise(version, source, replace=False) == 0
    assert capsys.readouterr().err == "warning: no column 'genres': items that are there keep theirs\n"
    assert revise(version, source, replace=True) == 0
    assert capsys.readouterr().err == "warning: no column 'genres': it is missing in every item\n"


def test_a_new_column_that_is_named_almost_like_a_feature_is_warned_of(
    version: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert revise(version, written(tmp_path, [{**NEW, "genre": "a", "title": "New"}]), replace=False) == 0
    assert "'genre' is no item feature of this version (did you mean 'genres'?)" in capsys.readouterr().err
    assert revise(version, written(tmp_path, [{**NEW, "genre": "a"}]), replace=False) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([NEW, {"item_id": "i1", "price": "dear"}], "column 'price', row 2: 'dear' is no number"),
        ([{"item_id": "i1", "price": float("inf")}], "column 'price', row 1: the number is not finite"),
        ([NEW, {**NEW, "item_id": None}], "column 'item_id', row 2: an item key is missing"),
        ([NEW, NEW], "column 'item_id', row 2: item 'new' stands here twice"),
        ([{"item_id": 1.5}], "column 'item_id', row 1: a category must be a text or an integer"),
        ([{"item_id": "i1", "genres": 5}], "column 'genres': lists of categories are needed"),
        ([{"price": 1.0}], "column 'item_id': the item key's column is missing"),
        (pa.table({"item_id": pa.array([], pa.string())}), "it holds no items"),
        (pa.table([pa.array(["a"]), pa.array(["b"])], names=["item_id", "item_id"]), "it has two columns 'item_id'"),
    ],
)
def test_a_bad_file_is_one_plain_line_and_nothing_is_written(
    version: Path, tmp_path: Path, items: Any, said: str, replace: bool, capsys: pytest.CaptureFixture[str]
):
    before = files(version)
    table = items if isinstance(items, pa.Table) else _table(items)
    assert revise(version, written(tmp_path, table), replace=replace) == 1
    error = capsys.readouterr().err
    assert f"items.parquet: {said}" in error
    assert error.count("\n") == 1
    assert files(version) == before
    assert not (version / "catalogs").exists()


def _table(items: list[dict[str, Any]]) -> pa.Table:
    """Numbers beside texts in one column become texts, as in a file that went through a spreadsheet."""
    columns = {name: [item.get(name) for item in items] for name in {key: None for item in items for key in item}}
    return pa.table(
        {
            name: [None if one is None else str(one) for one in values]
            if any(isinstance(one, str) for one in values)
            else values
            for name, values in columns.items()
        }
    )


@pytest.mark.parametrize("content", [None, b"a,b\n1,2\n", b"PAR1"])
def test_what_is_no_parquet_is_one_plain_line(
    version: Path, tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
):
    source = tmp_path / "items.parquet"
    if content is not None:
        source.write_bytes(content)
    assert revise(version, source, replace=False) == 1
    error = capsys.readouterr().err
    assert "items.parquet: not readable as Parquet" in error
    assert error.count("\n") == 1


def test_a_version_without_an_item_key_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    version = publish_tiny(tmp_path, encoder=tiny_encoder(item=None))
    assert revise(version, written(tmp_path, [NEW]), replace=False) == 1
    assert "the version has no item key, and so no catalog" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"), [("manifest.json", "manifest.json: the file is missing"), ("encoder.json", "encoder.json: ")]
)
def test_a_damaged_version_takes_no_revision(
    version: Path, tmp_path: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]
):
    (version / name).unlink()
    assert revise(version, written(tmp_path, [NEW]), replace=False) == 1
    assert said in capsys.readouterr().err
    assert revision_numbers(version) == [0]


def test_a_damaged_newest_revision_is_not_built_on(version: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    add_revision(version, [NEW])
    (version / "catalogs" / "1.parquet").write_bytes(b"PAR1")
    assert revise(version, written(tmp_path, [NEW]), replace=False) == 1
    assert "catalogs/1.parquet: its sha256" in capsys.readouterr().err
    assert revision_numbers(version) == [0, 1]


def test_what_a_killed_writer_left_is_written_over(version: Path):
    (version / "catalogs").mkdir()
    for name in ("1.parquet", ".1.parquet", ".1.json"):
        (version / "catalogs" / name).write_bytes(b"half")
    assert revision_numbers(version) == [0]
    add_revision(version, [NEW])
    assert sorted(path.name for path in (version / "catalogs").iterdir()) == ["1.json", "1.parquet"]
    assert verify(version) == 0


def test_a_write_that_fails_half_way_leaves_nothing(
    version: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(revising, "write_json", full)
    before = files(version)
    assert revise(version, written(tmp_path, [NEW]), replace=False) == 1
    assert "No space left" in capsys.readouterr().err
    assert files(version) == before
    assert not (version / "catalogs").exists()


def test_revisions_added_at_once_have_one_order_and_lose_nothing(version: Path, tmp_path: Path):
    running = []
    for number in range(3):
        source = tmp_path / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist([{"item_id": f"new{number}", "price": 1.0}]), source)
        command = [sys.executable, "-m", "service", "catalog", "--artifact", str(version), "--items", str(source)]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert revision_numbers(version) == [0, 1, 2, 3]
    assert {"new0", "new1", "new2"} <= prices(version, 3).keys()


def test_a_version_that_cannot_be_written_is_one_plain_line(
    version: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (version / "catalogs").write_text("a file stands where the folder must be")
    assert revise(version, written(tmp_path, [NEW]), replace=False) == 1
    error = capsys.readouterr().err
    assert "File exists" in error
    assert error.count("\n") == 1


def test_a_value_beyond_float32_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    features = [{**one, "scaler": "none"} if one["name"] == "price" else one for one in FEATURES]
    version = publish_tiny(tmp_path, encoder=tiny_encoder(features=features))
    assert revise(version, written(tmp_path, [{"item_id": "i1", "price": 1e300}]), replace=False) == 1
    assert "column 'price', row 1" in capsys.readouterr().err


def test_verify_checks_the_revisions_too(version: Path, capsys: pytest.CaptureFixture[str]):
    add_revision(version, [NEW])
    assert verify(version) == 0
    assert "catalog revision" in capsys.readouterr().out
    (version / "catalogs" / "1.parquet").write_bytes(b"PAR1")
    assert verify(version) == 1
    assert "catalogs/1.parquet: its sha256" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--artifact", "x"], ["--items", "x"], ["--artifact", "x", "--items", "y", "--over"]]
)
def test_wrong_usage_is_exit_code_2(words: list[str]):
    with pytest.raises(SystemExit) as ended:
        main(["catalog", *words])
    assert ended.value.code == 2
