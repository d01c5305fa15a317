"""MODEL_CARD.md: what a version is, what it was judged on, and where it is weak (Mitchell et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from training.report.evidence import Evidence
from training.report.html import number

WEAK_SLICES = 8
FEWEST_ROWS = 100  # of a slice that is called weak


def card(evidence: Evidence) -> str:
    """The card as Markdown."""
    manifest = evidence.manifest
    data = manifest["training_config"]["data"]
    parts = [
        f"# Model card: {evidence.version}",
        "## Details\n\n" + _lines(_details(manifest)),
        "## Use\n\n" + _use(data),
        "## Data\n\n" + _lines(_data(manifest)) + _notes(manifest),
        f"## Metrics\n\n{_metrics(manifest)}\n\nSettings and the published epoch were chosen on the validation part.",
        f"## Where it is weak\n\n{_weak(evidence)}",
        f"## Leakage\n\n{_leakage(evidence)}",
        "## Caveats\n\n" + _lines(_caveats(evidence)),
    ]
    return "\n\n".join(parts) + "\n"


def _details(manifest: Mapping[str, Any]) -> list[str]:
    config = manifest["training_config"]
    model, train = config["model"], config["train"]
    package = manifest["package"]
    return [
        f"Wide & Deep (Cheng et al. 2016), hidden layers {model['hidden']}, dropout {model['dropout']}",
        f"{len(config['features'])} features, {len(config['crosses'])} crosses",
        f"wide part by {train['wide_optimizer']}, deep part by {train['deep_optimizer']}; seed {manifest['seed']}",
        f"correction of its probabilities: {manifest['correction']['kind']}",
        f"twinrank {package['version']}, commit {package['commit'] or 'unknown'}",
    ]


def _use(data: Mapping[str, Any]) -> str:
    of = f"items (`{data['item']}`)" if data.get("item") else "rows"
    return (
        f"Estimates the probability that `{data['label']}` is 1, to rank {of} for a user. It is judged on logged rows "
        "that an earlier policy chose; it says nothing of items which that policy never showed. Not for decisions "
        "about people."
    )


def _data(manifest: Mapping[str, Any]) -> list[str]:
    split = manifest["split"]
    rows = ", ".join(f"{number(count)} {name}" for name, count in split["rows"].items())
    gap = f", a gap of {split['gap']:g} s between parts" if split.get("gap") else ""
    lines = [f"{number(manifest['data']['rows'])} rows, split by {split['kind']}{gap}: {rows}"]
    return [*lines, *(f"`{name}` sha256 {digest[:16]}…" for name, digest in manifest["data"]["files"].items())]


def _notes(manifest: Mapping[str, Any]) -> str:
    return "\n" + _lines(manifest["notes"]) if manifest.get("notes") else ""


def _metrics(manifest: Mapping[str, Any]) -> str:
    head = ("part", "rows", "AUC", "log loss", "GAUC", "NE", "score / rate", "ECE")
    names = ("rows", "auc", "logloss", "gauc", "ne", "calibration", "ece")
    return _table(head, [(part, *(found[name] for name in names)) for part, found in manifest["metrics"].items()])


def _weak(evidence: Evidence) -> str:
    known = [one for one in evidence.manifest["slices"]["metrics"] if one["rows"] >= FEWEST_ROWS]
    known = [one for one in known if one["auc"] is not None]
    if not known:
        return "No slice is large enough to tell."
    weak = sorted(known, key=lambda one: one["auc"])[:WEAK_SLICES]
    head = ("slice", "rows", "AUC", "log loss", "score / rate", "ECE")
    names = ("rows", "auc", "logloss", "calibration", "ece")
    rows = [(f"{one['column']}: {one['value']}", *(one[name] for name in names)) for one in weak]
    return (
        f"The slices of the lowest AUC, all of whose AUC is {number(evidence.metrics['auc'])}.\n\n{_table(head, rows)}"
    )


def _leakage(evidence: Evidence) -> str:
    report = evidence.manifest["leakage"]
    if not report["findings"]:
        return f"No sign found in {number(report['looked_at'])} of {number(report['rows'])} rows."
    head = ("level", "check", "column", "evidence")
    return _table(head, [(f["level"], f["check"], f["column"] or "(rows)", f["evidence"]) for f in report["findings"]])


def _caveats(evidence: Evidence) -> list[str]:
    lines = ["One seed: the spread between seeds is not in these figures."]
    if evidence.leaks:
        lines.insert(0, "**The leakage report names leaks: the figures cannot be believed.**")
    if evidence.part != "test":
        lines.append("There is no test part: the figures are of the rows by which the epoch was chosen.")
    if evidence.manifest["split"]["kind"] != "time":
        lines.append("The split does not follow time: figures in service will be lower where tastes change.")
    return lines


def _lines(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows)])


def _cell(value: object) -> str:
    return number(value).replace("|", "\\|").replace("\n", " ")
