"""The weights of a version by their values, and the notebook that draws them."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import numpy as np
import pytest

from service.scoring.predictor import RowRequest
from tests.training.tiny_data import config, fit, write_data
from training.explore import Explorer

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explore")
    return fit(config(), write_data(folder / "data"), folder / "artifacts")


def test_a_wide_weight_is_the_one_that_explains_its_value(version: Path) -> None:
    explorer = Explorer(version)
    predictor = explorer.artifact.predictor
    (explained,) = predictor.explain(predictor.encode([RowRequest([{"item_id": "i1"}])]))
    place = explorer.values("item_id").index("i1")
    assert dict(explained.terms)["item_id"] == pytest.approx(float(explorer.wide_weights()["item_id"][place]))


def test_neighbours_are_the_values_of_the_nearest_vectors(version: Path) -> None:
    explorer = Explorer(version)
    vectors, values = explorer.embedding("item_id"), explorer.values("item_id")
    assert len(vectors) == len(values)
    near = explorer.neighbours("item_id", "i1", 3)
    assert "i1" not in [one.value for one in near]
    a, b = vectors[values.index("i1")], vectors[values.index(near[0].value)]
    assert near[0].cosine == pytest.approx(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), abs=1e-5)
    assert near[0].cosine >= near[1].cosine >= near[2].cosine


@pytest.mark.filterwarnings("ignore")  # the kernel's own libraries warn of what is theirs
def test_the_notebook_runs(version: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINRANK_VERSION", str(version))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(ROOT / "notebooks" / "explore.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT / "notebooks")}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3


def test_the_notebook_is_kept_without_its_outputs() -> None:
    notebook = nbformat.read(ROOT / "notebooks" / "explore.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
