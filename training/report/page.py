"""report.html: everything about a version on one page that needs no other file, for the screen and for paper."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from training.metrics import calibration_groups
from training.report.charts import Axis, Series, bars, chart
from training.report.evidence import Evidence, histograms, precision_recall, roc
from training.report.html import key_figures, number, paragraph, section, table

_SLICE_HEAD = ("feature", "value", "rows", "positives", "AUC", "log loss", "score / rate", "ECE")
PARTS = {"test": "test part", "valid": "validation part"}


def page(evidence: Evidence) -> str:
    """The page as HTML."""
    sections = {
        "leakage": ("Leakage", _leakage(evidence)),
        "training": ("Training", _training(evidence)),
        "ranking": ("Ranking", _ranking(evidence)),
        "calibration": ("Calibration", _calibration(evidence)),
        "slices": ("Slices", _slices(evidence)),
        "features": ("Features", _features(evidence)),
        "data": ("Data", _data(evidence)),
        "config": ("Config", _config(evidence)),
        "environment": ("Environment", _environment(evidence)),
    }
    links = "".join(f'<a href="#{name}">{title}</a>' for name, (title, _) in sections.items())
    body = "".join(section(name, title, html) for name, (title, html) in sections.items())
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(evidence.version)}</title>'
        f"<style>{_style()}</style></head><body><header>{_head(evidence)}"
        f'<nav aria-label="Sections">{links}</nav></header><main>{body}</main></body></html>\n'
    )


def _style() -> str:
    return Path(__file__).with_name("style.css").read_text(encoding="utf-8")


def _head(evidence: Evidence) -> str:
    found, split = evidence.metrics, evidence.manifest["split"]
    date = datetime.now(UTC).strftime("%-d %B %Y")
    figures = [("AUC", found["auc"]), ("log loss", found["logloss"]), ("GAUC", found["gauc"]), ("ECE", found["ece"])]
    figures += [("normalised entropy", found["ne"]), ("score / rate", found["calibration"])]
    words = f"Figures are of the {PARTS[evidence.part]}: {number(found['rows'])} rows, "
    words += f"{number(found['positives'])} of them positive. "
    words += f"Epoch {evidence.manifest['best_epoch']} is published, chosen on the validation part."
    warning = ""
    if evidence.leaks:
        names = ", ".join(dict.fromkeys(one["column"] or "the rows" for one in evidence.leaks))
        text = f"The leakage report names {names}. Until that is mended, no figure on this page can be believed."
        warning = f'<p class="warning" role="note">{escape(text)}</p>'
    return (
        f"<h1>{escape(evidence.version)}</h1>"
        f'<p class="quiet">Wide &amp; Deep click model, {date}; split by {escape(str(split["kind"]))}</p>'
        f"{key_figures(figures)}{paragraph(words)}{warning}"
    )


def _leakage(evidence: Evidence) -> str:
    report = evidence.manifest["leakage"]
    looked = f"{number(report['looked_at'])} of {number(report['rows'])} rows were looked at before training."
    if not report["findings"]:
        return paragraph(f"No sign of a leak was found. {looked}")
    head = ("level", "check", "column", "evidence", "what to do")
    rows = [(f["level"], f["check"], f["column"] or "(rows)", f["evidence"], f["advice"]) for f in report["findings"]]
    marks = [f["level"] for f in report["findings"]]
    return table(looked, head, rows, marks)


def _training(evidence: Evidence) -> str:
    epochs = evidence.manifest["epochs"]
    numbers = [float(n) for n in range(1, len(epochs) + 1)]
    best = evidence.manifest["best_epoch"]
    x = Axis.over("epoch", numbers, start=1.0, end=max(2.0, numbers[-1]), whole=True)
    losses = [("training", [e["loss"] for e in epochs]), ("validation", [e["valid"]["logloss"] for e in epochs])]
    lines = [Series(name, _known(numbers, values)) for name, values in losses]
    aucs = Series("validation AUC", _known(numbers, [e["valid"]["auc"] for e in epochs]))
    speed = Series("rows a second", _known(numbers, [float(e["rows_per_second"]) for e in epochs]))
    pictures = [
        chart("Log loss", f"Log loss by epoch; epoch {best} is published.", x, _axis("log loss", lines), lines),
        chart("Validation AUC", f"AUC by epoch; epoch {best} is best.", x, _axis("AUC", [aucs]), [aucs]),
        chart("Throughput", "Training rows a second by epoch.", x, _axis("rows/s", [speed], start=0.0), [speed]),
    ]
    head = ("epoch", "training loss", "validation log loss", "validation AUC", "rows/s")
    rows = [
        (n, e["loss"], e["valid"]["logloss"], e["valid"]["auc"], int(e["rows_per_second"]))
        for n, e in enumerate(epochs, 1)
    ]
    note = "The training loss is met under dropout and with unknown ids dealt in, so it may lie above the other."
    return f'<div class="pair">{"".join(pictures)}</div>{paragraph(note)}{_folded("By epoch", table("", head, rows))}'


def _ranking(evidence: Evidence) -> str:
    labels, scores, found = evidence.labels, evidence.scores, evidence.metrics
    if found["auc"] is None:
        return paragraph(f"Undefined: {found['reason']}.")
    rate = float(labels.mean())
    unit = Axis.over("share of negatives taken in", [0, 1], start=0.0, end=1.0)
    up = Axis.over("share of positives found", [0, 1], start=0.0, end=1.0)
    precision = Series("precision", precision_recall(labels, scores))
    base = Series("at random", [(0.0, rate), (1.0, rate)])
    recall = Axis.over("recall", [0, 1], start=0.0, end=1.0)
    negative, positive = histograms(labels, scores)
    both = [Series("negatives", negative, "bars"), Series("positives", positive, "bars")]
    x = Axis.over("score", [0.0, negative[-1][0] * 81 / 79], start=0.0, end=min(1.0, negative[-1][0] * 81 / 79))
    pictures = [
        chart("ROC", f"AUC {found['auc']:.4f}.", unit, up, [Series("ROC", roc(labels, scores))], diagonal=True),
        chart(
            "Precision and recall",
            f"Random ranking has precision {rate:.4f}.",
            recall,
            Axis.over("precision", [b for _, b in precision.points], start=0.0),
            [precision, base],
        ),
        chart("Scores", "Histogram of scores by class.", x, _axis("share of the class", both, start=0.0), both),
    ]
    return f'<div class="pair">{"".join(pictures)}</div>'


def _calibration(evidence: Evidence) -> str:
    rows, mean, rate = calibration_groups(evidence.labels.astype(np.float64), evidence.scores.astype(np.float64))
    series = [_reliability("scores", rows, mean, rate)]
    correction = evidence.manifest["correction"]
    words = "No correction is fitted."
    if evidence.before is not None:
        groups = calibration_groups(evidence.labels.astype(np.float64), evidence.before.astype(np.float64))
        series.append(_reliability("before the correction", *groups))
        plain = correction["uncorrected"][evidence.part]
        words = f"A correction ({correction['kind']}), fitted on the validation part, is part of the model: "
        words += f"ECE {number(plain['ece'])} before, {number(evidence.metrics['ece'])} after; "
        words += f"log loss {number(plain['logloss'])} before, {number(evidence.metrics['logloss'])} after."
    values = [value for one in series for point in one.points for value in point]
    x, y = (Axis.over(label, values, start=0.0) for label in ("mean score", "share of positives"))
    picture = chart("Reliability", "Twenty groups of equal size; the diagonal is perfect.", x, y, series, diagonal=True)
    found = [(int(n), float(a), float(b), float(a - b)) for n, a, b in zip(rows, mean, rate, strict=True)]
    numbers = table("", ("rows", "mean score", "share of positives", "difference"), found)
    return f'<div class="pair">{picture}</div>{paragraph(words)}{_folded("By group", numbers)}'


def _slices(evidence: Evidence) -> str:
    rows = [
        (
            *(one["column"], one["value"], one["rows"], one["positives"]),
            *(one[name] for name in ("auc", "logloss", "calibration", "ece")),
        )
        for one in evidence.manifest["slices"]["metrics"]
    ]
    if not rows:
        return paragraph("No unit, no item key and no [report] slices are named in the config.")
    return table(f"Of the {PARTS[evidence.part]}. New: not in the training part.", _SLICE_HEAD, rows)


def _features(evidence: Evidence) -> str:
    if not evidence.importances:
        return paragraph("The importance of features is undefined: one class only.")
    rows = [(one.feature, one.auc_drop, one.auc_spread) for one in evidence.importances]
    about = f"{rows[0][0]} is worth most: without it the AUC falls by {rows[0][1]:.4f}."
    picture = bars("Importance", about, "AUC lost when the feature's values are dealt out at random", rows)
    note = "Means of three deals, with their range. Features that say the same share their worth, and look small."
    return f"{picture}{paragraph(note)}"


def _data(evidence: Evidence) -> str:
    manifest = evidence.manifest
    counts = [(name, rows) for name, rows in manifest["split"]["rows"].items()]
    files = [(name, digest) for name, digest in manifest["data"]["files"].items()]
    notes = "".join(f"<li>{escape(note)}</li>" for note in manifest.get("notes", ()))
    parts = table("Rows of each part", ("part", "rows"), counts)
    listed = _folded("Files", table("", ("file", "sha256"), files))
    return f"{parts}{f'<ul>{notes}</ul>' if notes else ''}{listed}"


def _config(evidence: Evidence) -> str:
    config = evidence.manifest["training_config"]
    features = [(f["name"], f["kind"], f["side"], _rest(f)) for f in config["features"]]
    fixed = {name: section_ for name, section_ in config.items() if name not in ("features", "crosses")}
    rows = [(name, key, json.dumps(value)) for name, values in fixed.items() for key, value in values.items()]
    crosses = [(" × ".join(cross["of"]), cross["buckets"]) for cross in config["crosses"]]
    return (
        table("Features", ("name", "kind", "side", "settings"), features)
        + (table("Crosses", ("of", "buckets"), crosses) if crosses else "")
        + table("Settings", ("section", "key", "value"), rows)
    )


def _environment(evidence: Evidence) -> str:
    manifest = evidence.manifest
    package, ran = manifest["package"], manifest["trained_on"]
    rows = [("twinrank", package["version"]), ("commit", package["commit"] or "unknown")]
    rows += [(name, str(value)) for name, value in {**ran, **manifest["libraries"]}.items()]
    rows += [("seed", str(manifest["seed"]))]
    return f"{table('', ('what', 'which'), rows)}<pre>{escape(manifest['command'])}</pre>"


def _reliability(name: str, rows: Any, mean: Any, rate: Any) -> Series:
    return Series(name, list(zip(mean.tolist(), rate.tolist(), strict=True)), "dots", [3.2] * len(rows))


def _axis(label: str, series: list[Series], start: float | None = None) -> Axis:
    return Axis.over(label, [b for one in series for _, b in one.points], start=start)


def _known(numbers: list[float], values: list[float | None]) -> list[tuple[float, float]]:
    return [(n, value) for n, value in zip(numbers, values, strict=True) if value is not None]


def _folded(summary: str, html: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{html}</details>"


def _rest(feature: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in feature.items() if key not in ("name", "kind", "side")}
    return ", ".join(f"{key} {json.dumps(value)}" for key, value in shown.items())
