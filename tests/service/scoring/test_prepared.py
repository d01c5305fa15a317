"""A version that was prepared and mapped is the version itself."""

from pathlib import Path

import numpy as np
import pytest

from service.scoring.artifact import open_artifact
from service.scoring.engine import Engine
from service.scoring.files import ArtifactError
from service.scoring.half import Half
from service.scoring.predictor import Predictor, RankRequest, RowRequest
from service.scoring.prepared import attach, attach_catalog, prepare
from tests.tiny import publish_tiny
from tests.training.tiny_data import config, fit, write_data

USER = {"user_id": 3, "age": 30}


@pytest.fixture(scope="module", name="version")
def _version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    return fit(config(), write_data(folder / "data"), folder / "artifacts")


@pytest.fixture(scope="module", name="folder")
def _folder(version: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare(version, folder)
    return folder


@pytest.fixture(name="mapped")
def _mapped(folder: Path) -> Predictor:
    return attach(folder)


def test_it_scores_as_the_opened_version_does_to_the_last_bit(version: Path, mapped: Predictor) -> None:
    opened = open_artifact(version).predictor
    for request in (
        RowRequest([{**USER, "item_id": "i2", "price": 4.5, "genres": ["g1"]}, {}]),
        RankRequest(USER, [f"i{n}" for n in range(30)]),
        RankRequest({"user_id": "stranger"}, ["i1", {"item_id": "i2", "price": 4}, "new"]),
    ):
        assert np.array_equal(mapped.scores_of(request), opened.scores_of(request))


def test_it_counts_and_refuses_as_the_opened_version_does(version: Path, mapped: Predictor) -> None:
    opened = open_artifact(version).predictor
    request = RankRequest({"user_id": "stranger"}, ["i1", {"item_id": "i2", "genres": ["zz"]}, "new"])
    one, other = mapped.encode([request]), opened.encode([request])
    assert (one.unknown, one.missing, one.strangers()) == (other.unknown, other.missing, other.strangers())
    assert mapped.encoder.layout == opened.encoder.layout
    assert mapped.schema == opened.schema


def test_its_arrays_are_the_files_pages(mapped: Predictor) -> None:
    assert mapped.catalog is not None
    half = mapped.catalog.half
    assert isinstance(half, Half)
    for array in (mapped.catalog.items.index.keys, mapped.catalog.encoded.ids):
        base = array
        while isinstance(base.base, np.ndarray):
            base = base.base
        assert isinstance(base, np.memmap)


def test_it_goes_on_when_its_folder_has_gone(version: Path, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    prepare(version, tmp_path / "gone")
    mapped = attach(tmp_path / "gone")
    for path in sorted((tmp_path / "gone").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    assert len(mapped.scores_of(RankRequest(USER, ["i1", "i2"]))) == 2


def test_a_catalog_alone_can_be_taken(folder: Path, mapped: Predictor) -> None:
    catalog = attach_catalog(folder)
    assert catalog is not None
    assert catalog.revision == 0
    wanted = mapped.scores_of(RankRequest(USER, ["i1", "i2"]))
    mapped.catalog = catalog
    assert np.array_equal(mapped.scores_of(RankRequest(USER, ["i1", "i2"])), wanted)


def test_a_damaged_version_is_not_prepared(tmp_path: Path) -> None:
    version = publish_tiny(tmp_path / "artifacts")
    (version / "model.pt").write_bytes(b"x")
    (tmp_path / "out").mkdir()
    with pytest.raises(ArtifactError, match="sha256"):
        prepare(version, tmp_path / "out")


def test_another_precision_is_examined_where_it_is_attached(folder: Path) -> None:
    with pytest.raises(ArtifactError, match="off"):
        attach(folder, precision="bf16", precision_tolerance=1e-9)
    mapped = attach(folder, precision="bf16", precision_tolerance=0.1)
    assert mapped.engine.precision_error is not None
    assert 0 < mapped.engine.precision_error < 0.1


def test_what_was_laid_out_is_examined(version: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Engine.save_mapped

    def spoiled(path: Path, folder: Path) -> None:
        write(path, folder)
        for table in folder.glob("*.npy"):
            np.save(table, np.load(table) + 1)

    monkeypatch.setattr("service.scoring.mapped.LARGE", 64)
    monkeypatch.setattr(Engine, "save_mapped", spoiled)
    with pytest.raises(ArtifactError, match="off"):
        prepare(version, tmp_path)
