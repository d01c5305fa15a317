"""The notebook of an experiment, executed on a small export: it finds by SciPy and statsmodels what the report says."""

import json
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from service.experiments.evidence import Evidence
from service.experiments.export import Format, export
from service.experiments.report import report
from service.experiments.settings import ReportSettings
from tests.service.experiments.hand_made import arm, drawn, epoch, evidence, hashes

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "experiment.ipynb"


def ramp() -> Evidence:
    """90/10, then 50/50, then a third version beside them."""
    rng = np.random.default_rng(5)
    splits = [{"v1": 0.9, "v2": 0.1}, {"v1": 0.5, "v2": 0.5}, {"v1": 0.4, "v2": 0.4, "v3": 0.2}]
    rates = {"v1": 0.05, "v2": 0.06, "v3": 0.04}
    epochs = []
    for number, shares in enumerate(splits, 1):
        arms = []
        for at, (name, share) in enumerate(shares.items()):
            clicks, shown = drawn(rng, rates[name] / number, int(20_000 * share * number))
            arms.append(arm(name, share, clicks, shown, hashes(int(rng.poisson(2_000 * share)), at << 40)))
        epochs.append(epoch(*arms, number=number))
    return evidence(*epochs)


def executed(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """What the last cell prints."""
    monkeypatch.setenv("TWINRANK_EXPORT", str(path))
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return json.loads(notebook.cells[-1].outputs[0]["text"])


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_the_notebook_finds_what_the_report_says(form: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / f"export.{form}"
    path.write_bytes(export(ramp(), form))
    found, told = executed(path, monkeypatch), report(ramp(), settings=ReportSettings())
    assert found["srm"] == pytest.approx(told["srm"]["p"], rel=1e-9)
    assert found["lifts"].keys() == {"v2", "v3"}
    for one in told["versions"]:
        assert found["ctr"][one["version"]] == pytest.approx(one["ctr"], rel=1e-9)
        if one["lift"] is not None:
            lift = found["lifts"][one["version"]]
            assert [lift["low"], lift["high"]] == pytest.approx(one["lift_interval"], rel=1e-7)
            assert (lift["lift"], lift["p"]) == pytest.approx((one["lift"], one["p"]), rel=1e-7)
