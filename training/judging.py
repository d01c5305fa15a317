"""The epoch that is published: corrected, measured, described, and made a version."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from service.scoring.files import CARD, REPORT
from training import calibration, export, metrics
from training.config import Config
from training.distributed import ALONE, Group
from training.loop import finite_scores, scores
from training.model import WideDeep
from training.preparing import Prepared
from training.report.card import card
from training.report.evidence import Evidence
from training.report.importance import importances
from training.report.page import page
from training.run import Epoch, Run
from training.shuffle import Rows
from training.slices import slices
from training.watched import wide_weights

Figures = dict[str, dict[str, Any]]


def judge(model: WideDeep, prepared: Prepared, batches: Mapping[str, Rows], group: Group = ALONE) -> Figures:
    """Metrics of each part but the training part; all processes of a group share the work."""
    return {
        name: metrics.evaluate(
            prepared.labels(name), finite_scores(model, batches[name], name, group), prepared.units(name)
        )
        for name in prepared.parts
        if name != "train"
    }


def publish(
    artifacts: Path,
    version: str,
    run: Run,
    prepared: Prepared,
    batches: Mapping[str, Rows],
    config: Config,
    plain: Figures,
    *,
    command: str,
    device: str,
) -> Path:
    """Correct and describe the run's model, whose figures are `plain` before any correction, and publish it."""
    model = run.model
    fitted = calibration.correct(
        model, config.train.calibration, batches["valid"], prepared.labels("valid"), prepared.times("valid")
    )
    corrected = fitted["kind"] != "none"
    judged = "test" if len(prepared.parts["test"]) else "valid"
    shown = scores(model, batches[judged])
    found = judge(model, prepared, batches) if corrected else plain
    worth = importances(
        partial(scores, model),
        prepared.encoder.layout,
        prepared.encoded[judged],
        prepared.labels(judged),
        device,
        config.train.seed,
    )
    before = calibration.uncorrected(model, batches[judged]) if corrected else None
    model.to("cpu")
    sliced = slices(prepared.data, config, prepared.parts["train"], prepared.parts[judged], shown)
    manifest = (
        export.manifest(config, prepared.data, prepared.cuts, prepared.parts, found, command, device)
        | _described(prepared, run, judged)
        | {
            "correction": fitted | ({"uncorrected": plain} if corrected else {}),
            "slices": {"part": judged, "metrics": sliced},
        }
    )
    evidence = Evidence(version, manifest, judged, prepared.labels(judged), shown, before, worth)
    return export.publish_version(
        artifacts,
        version,
        model,
        prepared.encoder,
        prepared.data,
        prepared.parts,
        config,
        prepared.catalog,
        manifest,
        {REPORT: page(evidence), CARD: card(evidence)},
    )


def _described(prepared: Prepared, run: Run, judged: str) -> dict[str, Any]:
    """A manifest's entries of what was learned from, and how it went."""
    layout = prepared.encoder.layout
    assert prepared.leakage is not None  # the first process publishes
    assert run.best.epoch is not None  # a config has at least one epoch
    ids, bags = prepared.shares
    return {
        "notes": prepared.notes,
        "leakage": prepared.leakage.to_dict(),
        "values": export.values(prepared.encoder, prepared.encoded[judged]),
        "wide": wide_weights(run.model),
        "unknown_shares": dict(zip([c.name for c in (*layout.ids, *layout.bags)], [*ids, *bags], strict=True)),
        "best_epoch": run.best.epoch.number,
        "epochs": [_record(epoch) for epoch in run.history],
    }


def _record(epoch: Epoch) -> dict[str, Any]:
    shown = {"loss": epoch.loss, "rows_per_second": round(epoch.rows_per_second), "waiting": round(epoch.waiting, 4)}
    return {**shown, "valid": epoch.valid}
