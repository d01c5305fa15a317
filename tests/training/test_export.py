"""What is published: a module in evaluation mode, an exam that covers what requests may be, a full manifest."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import pytest
import torch

from service.scoring.artifact import open_artifact, read_manifest
from service.scoring.predictor import RankRequest, RowRequest
from tests.tiny import add_revision
from tests.training.tiny_data import config, fit, visible, write_data
from training.config import Config
from training.export import save_module
from training.model import WideDeep


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    return fit(config(), write_data(folder / "data"), folder / "artifacts")


def load(path: Path) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.*", category=DeprecationWarning)
        return torch.jit.load(path)  # type: ignore[no-any-return,no-untyped-call]


def test_the_manifest_says_how_many_values_were_missing_or_unknown_in_rows_that_training_did_not_see(
    version: Path,
) -> None:
    found = read_manifest(version)
    names = {feature["name"] for feature in found["schema"]["features"]}
    assert set(found["values"]["missing"]) == set(found["values"]["unknown"]) == names
    assert found["values"]["rows"] == found["split"]["rows"]["test"]


def test_the_manifest_counts_the_wide_weights_that_l1_left_at_zero(version: Path) -> None:
    wide = load(version / "model.pt").state_dict()["model.wide.weight"]
    assert read_manifest(version)["wide"] == {"weights": wide.numel(), "zero": int((wide == 0).sum())}
    assert 0 < int((wide == 0).sum()) < wide.numel()


def test_the_saved_module_is_not_optimised_yet(version: Path) -> None:
    # What is optimised before it is saved is so for one machine alone; freezing leaves no parameters.
    assert len(list(load(version / "model.pt").parameters())) > 4


def test_ex01_every_part_of_the_saved_module_is_in_evaluation_mode(version: Path) -> None:
    assert not any(part.training for part in load(version / "model.pt").modules())


def test_ex01_a_hundred_answers_to_one_request_are_one_answer_and_nothing_in_the_module_moves(version: Path) -> None:
    before = {name: value.clone() for name, value in load(version / "model.pt").state_dict().items()}
    predictor = open_artifact(version).predictor
    request = RowRequest([{"user_id": 3, "age": 30, "item_id": "i4"}])
    assert len({float(predictor.scores_of(request)[0]) for _ in range(100)}) == 1
    after = load(version / "model.pt").state_dict()
    assert all(torch.equal(before[name], value) for name, value in after.items())


def test_ex01_a_model_in_training_mode_is_not_saved(version: Path, tmp_path: Path) -> None:
    model = WideDeep(open_artifact(version).encoder.layout, (4,), 0.5)
    with pytest.raises(ValueError, match="training mode"):
        save_module(model, open_artifact(version).encoder.layout, tmp_path / "model.pt")
    assert not (tmp_path / "model.pt").exists()


def test_the_manifest_says_how_the_version_came_to_be(version: Path) -> None:
    manifest = read_manifest(version)
    assert Config.from_dict(manifest["training_config"]) == config()
    assert manifest["seed"] == config().train.seed
    assert manifest["command"] == "a test"
    assert set(manifest["data"]["files"]) == {"events.parquet", "items.parquet"}
    assert manifest["split"]["rows"] == {"train": 480, "valid": 60, "test": 60}
    assert set(manifest["package"]) == {"name", "version", "commit"}
    assert {"torch", "numpy", "scikit-learn", "python"} <= set(manifest["libraries"])
    for part in ("valid", "test"):
        assert {"auc", "logloss", "gauc", "ne", "calibration", "rows", "positives"} <= set(manifest["metrics"][part])


def test_the_exam_asks_known_unknown_missing_and_out_of_range_values_in_both_forms(version: Path) -> None:
    exam = json.loads((version / "exam.json").read_text())
    rows = [row for request in exam["requests"] for row in request.get("instances", [])]
    assert {} in rows
    assert any(row.get("age") is None and "age" in row for row in rows)
    assert any(isinstance(row.get("age"), float) and row["age"] > 54 for row in rows)
    assert any("never seen" in str(row.get("user_id")) for row in rows)
    rankings = [request for request in exam["requests"] if "candidates" in request]
    assert any(isinstance(one, dict) for request in rankings for one in request["candidates"])
    assert any("never seen" in str(one) for request in rankings for one in request["candidates"])
    assert len(exam["requests"]) == len(exam["scores"]) >= 60


def test_a_ranking_scores_as_the_rows_joined_by_hand(version: Path) -> None:
    predictor = open_artifact(version).predictor
    user, context = {"user_id": 5, "age": 20}, {"timestamp": 1_700_000_000}
    catalog = {row["item_id"]: row for row in _catalog(version)}
    ids = ["i3", "i1", "i20"]
    ranked = predictor.scores_of(RankRequest(user, ids, context))
    joined = [{**user, **context, **catalog[item]} for item in ids]
    assert ranked == pytest.approx(predictor.scores_of(RowRequest(joined)), abs=1e-6)


def test_a_later_catalog_revision_is_ranked_as_its_rows_are_scored(version: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(version, tmp_path / "v1"))
    changed = {"item_id": "i3", "genres": ["g0", "g4"], "price": 3.5}
    new = {"item_id": "new", "genres": ["g1"], "price": 70.0}
    add_revision(copy, [changed, new])
    predictor = open_artifact(copy, revision=1).predictor
    assert predictor.engine.has_halves
    user, items = {"user_id": 5, "age": 20}, [changed, new, *(row for row in _catalog(copy) if row["item_id"] == "i1")]
    ranked = predictor.scores_of(RankRequest(user, ["i3", "new", "i1"]))
    joined = RowRequest([{**user, **item} for item in items])
    assert ranked == pytest.approx(predictor.scores_of(joined), abs=1e-6)


def test_the_same_seed_gives_the_same_parameters_to_the_last_bit_and_another_seed_others(version: Path) -> None:
    data = version.parent.parent / "data"
    again, other = (
        fit(config(train={"seed": seed}), data, version.parent.parent / "again", f"v{seed}") for seed in (1, 2)
    )
    first, second, third = (load(path / "model.pt").state_dict() for path in (version, again, other))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], third[name]) for name in first)


def test_a_fit_leaves_nothing_visible_but_the_version(version: Path) -> None:
    assert visible(version.parent) == ["v1"]


def test_a_fit_writes_tensorboard_scalars_under_a_dot_folder(version: Path) -> None:
    assert list((version.parent / ".runs" / "v1").rglob("events.out.tfevents.*"))


def _catalog(version: Path) -> list[dict[str, object]]:
    import pyarrow.parquet as pq

    return [
        {**row}
        for row in pq.read_table(version / "catalog.parquet", columns=["item_id", "genres", "price"]).to_pylist()
    ]
