"""Hostile, damaged and foreign versions: each is refused with its own plain reason, before it can do harm."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pyarrow as pa
import pytest
import sklearn
import torch
from sklearn.preprocessing import MinMaxScaler

from service.scoring.artifact import open_artifact, read_manifest, version_names
from service.scoring.files import ArtifactError, is_version_name, sha256
from service.scoring.predictor import RowRequest
from service.scoring.publish import Draft, check_publishable, publish
from tests.service.scoring.halved import encoder_of, save_model, scores_of
from tests.tiny import ITEMS, TinyModule, publish_tiny, rows, save_scripted, tiny_encoder


@pytest.fixture
def version(tmp_path: Path) -> Path:
    return publish_tiny(tmp_path)


def change_manifest(version: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((version / "manifest.json").read_text())
    change(manifest)
    (version / "manifest.json").write_text(json.dumps(manifest))


def resign(version: Path, name: str) -> None:
    """Make the manifest's hash match a changed file: what a careless or hostile writer would do."""
    change_manifest(version, lambda manifest: manifest["files"].update({name: sha256(version / name)}))


def refused(version: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        open_artifact(version)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_published_version_opens_and_is_listed(version: Path) -> None:
    assert open_artifact(version).version == "v1"
    assert version_names(version.parent) == ["v1"]


def test_a_version_can_be_moved_to_another_root(version: Path, tmp_path: Path) -> None:
    shutil.copytree(version, tmp_path / "elsewhere" / "v1")
    assert open_artifact(tmp_path / "elsewhere" / "v1").version == "v1"


@pytest.mark.parametrize("name", ["model.pt", "encoder.json", "scalers.joblib", "exam.json", "catalog.parquet"])
def test_ld02_a_cut_file_is_refused_by_name(version: Path, name: str) -> None:
    content = (version / name).read_bytes()
    (version / name).write_bytes(content[:-20])
    assert refused(version).startswith(name)


@pytest.mark.parametrize("name", ["model.pt", "scalers.joblib"])
def test_ld02_an_empty_or_absent_file_is_refused_by_name(version: Path, name: str) -> None:
    (version / name).write_bytes(b"")
    assert refused(version).startswith(name)
    (version / name).unlink()
    assert refused(version).startswith(f"{name}: the file is missing")


def test_ld02_a_cut_module_is_refused_even_with_a_matching_hash(version: Path) -> None:
    (version / "model.pt").write_bytes((version / "model.pt").read_bytes()[:-200])
    resign(version, "model.pt")
    assert refused(version).startswith("model.pt: no TorchScript module")


def test_ld02_a_state_dict_under_the_modules_name_is_refused(version: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, version / "model.pt")
    resign(version, "model.pt")
    assert refused(version).startswith("model.pt: no TorchScript module")


def test_ld02_a_scaler_that_was_never_fitted_is_refused(version: Path) -> None:
    joblib.dump({"age": MinMaxScaler(), "price": MinMaxScaler()}, version / "scalers.joblib")
    resign(version, "scalers.joblib")
    assert "never fitted" in refused(version)


def test_ld01_another_scikit_learn_in_the_manifest_is_refused_with_both_versions(version: Path) -> None:
    change_manifest(version, lambda manifest: manifest["libraries"].update({"scikit-learn": "0.24.2"}))
    reason = refused(version)
    assert "0.24.2" in reason
    assert sklearn.__version__ in reason


def test_ld01_another_scikit_learn_in_the_pickle_is_refused(version: Path) -> None:
    here = sklearn.__version__
    other = "0" + here[1:]  # of the same length, so that the pickle stays whole
    content = (version / "scalers.joblib").read_bytes()
    assert here.encode() in content
    (version / "scalers.joblib").write_bytes(content.replace(here.encode(), other.encode()))
    resign(version, "scalers.joblib")
    assert other in refused(version)


def test_ld01_another_patch_level_is_admitted(version: Path) -> None:
    minor = ".".join(sklearn.__version__.split(".")[:2])
    change_manifest(version, lambda manifest: manifest["libraries"].update({"scikit-learn": f"{minor}.99"}))
    assert open_artifact(version).version == "v1"


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.marker), "w"))


@pytest.mark.parametrize("signed", [False, True])
def test_se01_a_pickle_that_runs_code_is_refused_before_it_runs(version: Path, tmp_path: Path, signed: bool) -> None:
    marker = tmp_path / "marker"
    scaler = MinMaxScaler().fit([[1.0], [2.0]])
    joblib.dump({"age": scaler, "price": scaler, "extra": Payload(marker)}, version / "scalers.joblib")
    if signed:
        resign(version, "scalers.joblib")
    assert refused(version).startswith("scalers.joblib")
    assert not marker.exists()


def test_se01_code_inside_an_array_of_objects_is_refused_too(version: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    scaler = MinMaxScaler().fit([[1.0], [2.0]])
    scaler.scale_ = np.array([Payload(marker)], dtype=object)
    joblib.dump({"age": scaler, "price": scaler}, version / "scalers.joblib")
    resign(version, "scalers.joblib")
    assert "array of objects" in refused(version)
    assert not marker.exists()


def test_ex01_a_module_in_training_mode_is_refused(version: Path) -> None:
    save_scripted(TinyModule(tiny_encoder(), 1, None).train(), version / "model.pt")
    resign(version, "model.pt")
    assert "training mode" in refused(version)


def test_pr02_a_parameter_that_is_not_finite_is_refused(version: Path) -> None:
    module = TinyModule(tiny_encoder(), 1, None).eval()
    with torch.no_grad():
        module.table[3] = float("nan")
    save_scripted(module, version / "model.pt")
    resign(version, "model.pt")
    assert "parameter 'table' is not finite" in refused(version)


def test_other_weights_fail_the_exam(version: Path) -> None:
    save_scripted(TinyModule(tiny_encoder(), 2, None).eval(), version / "model.pt")
    resign(version, "model.pt")
    assert "scores its own exam" in refused(version)


def test_two_swapped_words_of_a_vocabulary_fail_the_exam(version: Path) -> None:
    name = next(path for path in sorted((version / "vocabularies").iterdir()) if "u1" in path.read_text())
    words = json.loads(name.read_text())
    words[1], words[3] = words[3], words[1]
    name.write_text(json.dumps(words))
    resign(version, f"vocabularies/{name.name}")
    assert "scores its own exam" in refused(version)


def test_tables_smaller_than_the_vocabulary_are_refused(version: Path) -> None:
    small = tiny_encoder(features=[{"name": "user_id", "kind": "categorical", "side": "user"}], crosses=[])
    save_scripted(TinyModule(small, 1, None).eval(), version / "model.pt")
    resign(version, "model.pt")
    assert "do not fit the feature schema" in refused(version)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(format=3), "format 3 is not supported"),
        (lambda m: m.update(engine="onnx"), "engine 'onnx' is not supported"),
        (lambda m: m.update(version="v9"), "is of version 'v9'"),
        (lambda m: m.pop("schema"), "'schema' is missing"),
        (lambda m: m["files"].pop("model.pt"), "no hash of model.pt"),
        (lambda m: m["files"].update({"../../etc/hostname": "0"}), "is no file of a version"),
        (lambda m: m["schema"]["features"].pop(3), "its feature schema is not the encoder's"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(version: Path, change: Callable[[Any], None], said: str) -> None:
    change_manifest(version, change)
    assert said in refused(version)


def test_a_manifest_that_is_no_json_is_refused(version: Path) -> None:
    (version / "manifest.json").write_text('{"format": NaN}')
    assert "not readable as JSON" in refused(version)


def test_work_in_progress_is_never_listed(version: Path) -> None:
    shutil.copytree(version, version.parent / ".v2-partial")
    shutil.copytree(version, version.parent / "weights")
    (version.parent / "empty").mkdir()
    assert version_names(version.parent) == ["v1"]


@pytest.mark.parametrize("name", ["", ".", "..", "../v1", "a/b", "-x", "weights", "a" * 65, "v1\n", "ü"])
def test_a_version_name_is_never_a_path(name: str, tmp_path: Path) -> None:
    assert not is_version_name(name)
    with pytest.raises(ArtifactError, match="cannot name a version"):
        check_publishable(tmp_path, name)


def test_a_taken_name_is_refused_and_the_version_stays_as_it_was(version: Path) -> None:
    before = {path: path.read_bytes() for path in version.rglob("*") if path.is_file()}
    with pytest.raises(ArtifactError, match="exists already"):
        publish_tiny(version.parent, seed=2)
    assert {path: path.read_bytes() for path in version.rglob("*") if path.is_file()} == before
    assert [path.name for path in version.parent.iterdir()] == ["v1"]


def test_a_failed_publication_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is of version 'other'"):
        publish_tiny(tmp_path, manifest={"version": "other"})
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_tells_what_made_the_version(version: Path) -> None:
    manifest = read_manifest(version)
    assert {"format", "version", "created", "engine", "schema", "files", "libraries", "metrics"} <= set(manifest)
    assert set(manifest["files"]) >= {"model.pt", "encoder.json", "scalers.joblib", "exam.json", "catalog.parquet"}


def test_serving_needs_no_scikit_learn(version: Path) -> None:
    code = (
        "import sys, pathlib; from service.scoring.artifact import open_artifact; "
        f"open_artifact(pathlib.Path({str(version)!r})); "
        "assert not any(name.startswith('sklearn') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ex01_a_hundred_answers_to_one_request_are_one_score(version: Path) -> None:
    predictor = open_artifact(version).predictor
    request = RowRequest([{"user_id": "u1", "age": 33, "genres": ["a"]}])
    scores = {float(predictor.scores_of(request)[0]) for _ in range(100)}
    assert len(scores) == 1


def test_a_faster_precision_is_measured_against_the_exam(tmp_path: Path) -> None:
    encoder = encoder_of()
    draft = Draft(
        version="v1",
        save_module=lambda path: save_model(encoder, path),
        encoder=encoder,
        catalog=pa.Table.from_pylist([dict(item) for item in ITEMS]),
        requests=[{"instances": rows()[::7]}],
        scores=[scores_of(encoder, rows()[::7], tmp_path / "model.pt")],
        manifest={"metrics": {}},
    )
    path = publish(tmp_path, draft)
    assert open_artifact(path).engine.precision_error is None
    measured = open_artifact(path, precision="bf16", precision_tolerance=0.1).engine.precision_error
    assert measured is not None
    assert 1e-5 < measured < 0.1
    with pytest.raises(ArtifactError, match=r"^exam.json: .* off at request 0 in bf16"):
        open_artifact(path, precision="bf16", precision_tolerance=1e-5)


def test_a_version_of_the_first_format_is_read(version: Path) -> None:
    change_manifest(version, lambda manifest: manifest.update(format=1))
    assert open_artifact(version).manifest["format"] == 1
