"""Catalog revisions on disk: found, checked, opened."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.scoring.artifact import open_artifact
from service.scoring.files import ArtifactError, sha256
from service.scoring.known import KnownNames, folder_state
from service.scoring.predictor import RankRequest
from service.scoring.revisions import Revision, list_revisions, open_catalog, read_items, revision_numbers
from tests.tiny import ITEMS, add_revision, publish_tiny, tiny_encoder

NEW = {"item_id": "new", "price": 19.0, "genres": ["a"]}


@pytest.fixture(scope="module", name="published")
def _published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """v1 with its own catalog and two revisions: one new item, then the first item at another price."""
    version = publish_tiny(tmp_path_factory.mktemp("artifacts"))
    add_revision(version, [NEW])
    add_revision(version, [{"item_id": "i0", "price": 19.0}])
    return version


@pytest.fixture
def version(published: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(published, tmp_path / "v1"))


def write_record(version: Path, number: int, change: Callable[[dict[str, Any]], Any]) -> None:
    path = version / "catalogs" / f"{number}.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def test_the_own_catalog_is_revision_0_and_later_ones_follow(published: Path):
    assert revision_numbers(published) == [0, 1, 2]
    assert [one.rows for one in list_revisions(published)] == [20, 21, 21]


def test_a_version_without_an_item_key_has_none(tmp_path: Path):
    version = publish_tiny(tmp_path, encoder=tiny_encoder(item=None))
    assert revision_numbers(version) == []
    with pytest.raises(ArtifactError, match="no item key"):
        open_catalog(version, open_artifact(version).predictor, 0)


def test_a_file_without_a_record_is_no_revision(version: Path):
    shutil.copy(version / "catalogs" / "2.parquet", version / "catalogs" / "3.parquet")
    for name in ("03.json", ".4.json", "x.json", "0.json"):
        (version / "catalogs" / name).write_text("{}")
    assert revision_numbers(version) == [0, 1, 2]


def test_a_revision_is_opened_as_it_was_written(published: Path):
    predictor = open_artifact(published).predictor
    catalog = open_catalog(published, predictor, 1)
    assert (catalog.revision, catalog.encoded.rows) == (1, 21)
    assert catalog.items.find(["new", "other"]).tolist() == [20, -1]


def test_the_own_catalog_is_opened_again(published: Path):
    catalog = open_catalog(published, open_artifact(published, revision=2).predictor, 0)
    assert (catalog.revision, catalog.encoded.rows) == (0, 20)


def test_a_version_opens_straight_at_a_revision(published: Path):
    opened = open_artifact(published, revision=2)
    assert opened.catalog is not None
    assert opened.catalog.revision == 2
    plain = open_artifact(published).predictor.scores_of(RankRequest({"age": 30}, [{**ITEMS[0], "price": 19.0}, NEW]))
    assert opened.predictor.scores_of(RankRequest({"age": 30}, ["i0", "new"])).tolist() == plain.tolist()


def test_the_exam_is_against_the_own_catalog_whatever_the_revision(version: Path):
    add_revision(version, [{**item, "price": 19.0 - float(item["price"])} for item in ITEMS])
    assert open_artifact(version, revision=3).version == "v1"
    assert open_artifact(version).version == "v1"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda v: (v / "catalogs/1.parquet").write_bytes(b"PAR1"), r"catalogs/1\.parquet: its sha256"),
        (lambda v: (v / "catalogs/1.parquet").unlink(), r"catalogs/1\.parquet: the file is missing"),
        (lambda v: (v / "catalogs/1.json").unlink(), r"catalogs/1\.json: the file is missing"),
        (lambda v: (v / "catalogs/1.json").write_text("[]"), r"catalogs/1\.json: 'sha256' is missing"),
        (lambda v: (v / "catalogs/1.json").write_text("{"), r"catalogs/1\.json: not readable"),
        (lambda v: write_record(v, 1, lambda record: record.update(rows=5)), "holds 21 items, its record says 5"),
        (lambda v: write_record(v, 1, lambda record: record.pop("rows")), "'rows' is missing"),
    ],
)
def test_a_damaged_revision_is_refused_by_name_and_the_version_still_opens(
    version: Path, damage: Callable[[Path], Any], said: str
):
    damage(version)
    predictor = open_artifact(version).predictor
    with pytest.raises(ArtifactError, match=said):
        open_catalog(version, predictor, 1)
    with pytest.raises(ArtifactError, match=said):
        open_artifact(version, revision=1)


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ({"item_id": ["a", "a"]}, "item 'a' stands here twice"),
        ({"item_id": ["a"], "price": ["dear"]}, "'dear' is no number"),
        ({"name": ["a"]}, "the item key's column is missing"),
    ],
)
def test_a_revision_that_another_program_wrote_is_checked_with_the_encoder(
    version: Path, items: dict[str, list[str]], said: str
):
    path = version / "catalogs" / "1.parquet"
    pq.write_table(pa.table(items), path)
    rows = len(next(iter(items.values())))
    write_record(version, 1, lambda record: record.update(sha256=sha256(path), rows=rows))
    with pytest.raises(ArtifactError, match=rf"catalogs/1\.parquet: .*{said}"):
        open_catalog(version, open_artifact(version).predictor, 1)


def test_a_record_that_cannot_be_read_is_listed_without_its_rows(version: Path):
    (version / "catalogs" / "1.json").write_text("{")
    assert list_revisions(version)[1] == Revision(1, None, None)


def test_the_own_catalog_is_checked_against_the_manifest(version: Path):
    predictor = open_artifact(version).predictor
    pq.write_table(pa.table({"item_id": ["a"]}), version / "catalog.parquet")
    with pytest.raises(ArtifactError, match=r"catalog\.parquet: its sha256 is not that of manifest\.json"):
        read_items(version, 0)
    assert predictor.catalog is not None


def test_revisions_change_neither_the_known_names_nor_the_folders_state(published: Path, tmp_path: Path):
    plain = publish_tiny(tmp_path)
    before, names = folder_state(tmp_path), KnownNames.scan(tmp_path)
    add_revision(plain, [NEW])
    assert (folder_state(tmp_path), KnownNames.scan(tmp_path)) == (before, names)
