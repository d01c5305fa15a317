"""The report and the model card of a published version."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from service.scoring.artifact import open_artifact
from tests.training.tiny_data import clicks, config, fit, write_data
from training.metrics import auc
from training.report.charts import Axis, Series, chart
from training.report.evidence import histograms, precision_recall, roc

SECTIONS = ("leakage", "training", "ranking", "calibration", "slices", "features", "data", "config", "environment")


class Reader(HTMLParser):
    """Checks that tags nest, and keeps what is asked of them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.addresses: list[str] = []
        self.pictures: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.ids += [value for name, value in attributes if name == "id" and value]
        self.addresses += [value for name, value in attributes if name in ("src", "href") and value]
        if tag == "svg":
            self.pictures.append(found)
        if tag not in ("meta", "path", "rect", "circle"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    made = config(report={"slices": ["genres"]}, train={"calibration": "platt"})
    return fit(made, write_data(folder / "data"), folder / "artifacts", "v1")


@pytest.fixture(scope="module")
def read(version: Path) -> Reader:
    reader = Reader()
    reader.feed((version / "report.html").read_text(encoding="utf-8"))
    assert reader.open == []
    return reader


def test_the_report_needs_no_other_file(version: Path, read: Reader) -> None:
    text = (version / "report.html").read_text(encoding="utf-8")
    assert all(address.startswith("#") for address in read.addresses)
    assert re.findall(r"url\(|@import|<script|https?://", text) == []


def test_every_section_is_there_and_reachable(read: Reader) -> None:
    assert set(SECTIONS) <= set(read.ids)
    assert {address[1:] for address in read.addresses} == set(SECTIONS)
    assert len(set(read.ids)) == len(read.ids)


def test_every_picture_has_a_title_and_a_description(read: Reader) -> None:
    assert len(read.pictures) >= 8
    for picture in read.pictures:
        assert picture["role"] == "img"
        assert set(str(picture["aria-labelledby"]).split()) <= set(read.ids)


def test_both_pages_are_files_of_the_version_and_say_its_figures(version: Path) -> None:
    manifest = json.loads((version / "manifest.json").read_text())
    assert {"report.html", "MODEL_CARD.md"} <= manifest["files"].keys()
    open_artifact(version)
    shown = f"{manifest['metrics']['test']['auc']:.4f}"
    for name in ("report.html", "MODEL_CARD.md"):
        assert shown in (version / name).read_text(encoding="utf-8")


def test_what_a_user_named_cannot_become_markup() -> None:
    found = chart("<b>&", "<script>", Axis.over("<i>", [0, 1]), Axis.over("y", [0, 1]), [Series("s", [(0, 1)])])
    assert "<script>" not in found
    assert "<i>" not in found


def test_the_area_under_the_drawn_roc_curve_is_the_auc() -> None:
    random = np.random.default_rng(1)
    labels = (random.random(3_000) < 0.3).astype(np.float32)
    scores = np.clip(labels * 0.2 + random.random(3_000), 0, 1).astype(np.float32)
    x, y = np.array(roc(labels, scores)).T
    assert np.trapezoid(y, x) == pytest.approx(auc(labels, scores), abs=2e-3)
    recall, precision = np.array(precision_recall(labels, scores)).T
    assert (recall[-1], precision[-1]) == (1.0, pytest.approx(labels.mean()))
    for shares in histograms(labels, scores):
        assert sum(share for _, share in shares) == pytest.approx(1)


def test_ticks_are_round_and_cover_the_values() -> None:
    axis = Axis.over("x", [0.613, 0.702])
    assert (axis.low, axis.high) == (pytest.approx(0.6), pytest.approx(0.72))
    assert len(axis.ticks) in range(4, 8)
    assert Axis.over("x", [3.0, 3.0]).low < 3.0


def test_a_version_without_a_test_part_is_judged_by_validation_and_says_so(tmp_path: Path) -> None:
    version = fit(config(split={"test": 0.0}), write_data(tmp_path / "data"), tmp_path / "artifacts")
    assert "of the validation part" in (version / "report.html").read_text(encoding="utf-8")
    assert "There is no test part" in (version / "MODEL_CARD.md").read_text(encoding="utf-8")


def test_a_test_part_of_one_class_leaves_pages_that_say_so(tmp_path: Path) -> None:
    rows = clicks()
    labels = np.where(np.arange(600) >= 540, 0, rows.column("clicked").to_numpy()).astype(np.int8)
    rows = rows.set_column(rows.column_names.index("clicked"), "clicked", pa.array(labels))
    version = fit(config(), write_data(tmp_path / "data", rows), tmp_path / "artifacts")
    assert "one class only" in (version / "report.html").read_text(encoding="utf-8")
    assert (version / "MODEL_CARD.md").is_file()
