"""What GET /experiments/{name} answers: evidence in, figures and a verdict out. Pure functions.

A version's `ctr` and `lift` are weighed over epochs, so where the split changed they are not the pooled clicks by
impressions that stand beside them. Clicks still to come are missing in all arms of an epoch alike, so a young epoch
lowers rates, not lifts.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np

from service.experiments.comparison import Comparison, click_rate, compare
from service.experiments.evidence import Epoch, Evidence
from service.experiments.quality import calibration, online_auc
from service.experiments.sequential import half_width
from service.experiments.settings import ReportSettings
from service.experiments.split_check import UnitCheck, check_errors, p_of
from service.experiments.split_state import SplitState, check_splits, state_of
from service.experiments.statistics import Estimate
from service.experiments.table import Table, distinct_units, joined_of, table_of, totals
from service.experiments.verdict import judge

Json = dict[str, Any]


def report(
    evidence: Evidence, *, settings: ReportSettings, shadow: Json | None = None, plan: Json | None = None
) -> Json:
    """The contract's JSON; numbers that are not known are None. `shadow` and `plan` are passed through."""
    table = table_of(evidence)
    split = check_splits(evidence.epochs, settings)
    comparisons = compared(table, settings)
    verdict = judge(evidence.default, comparisons, split.faults, settings, table.basis, warned=split.state == "warning")
    return {
        "experiment": evidence.experiment,
        "verdict": verdict._asdict(),
        "default": evidence.default,
        "basis": table.basis,
        "versions": [_version(evidence, table, name, comparisons.get(name), settings) for name in table.versions],
        "settings": {"alpha": settings.alpha, "planned": settings.planned, "margin": settings.margin},
        "srm": {"p": split.p, "state": split.state},
        "epochs": _epochs(evidence, split, settings),
        "shadow": shadow,
        "plan": plan,
    }


def compared(table: Table, settings: ReportSettings) -> dict[str, Comparison]:
    """Every challenger against the default."""
    if not table.versions:
        return {}
    base, many = table.row(table.versions[0]), len(table.challengers)
    return {version: compare(base, table.row(version), many, settings) for version in table.challengers}


def _version(
    evidence: Evidence, table: Table, version: str, comparison: Comparison | None, settings: ReportSettings
) -> Json:
    at = table.versions.index(version)
    rate = click_rate(*table.row(version), totals(table), settings)
    return {
        "version": version,
        "units": distinct_units(evidence, version),
        "predictions": int(table.predictions[at].sum()),
        "impressions": int(table.impressions[at].sum()),
        "clicks": int(table.clicks[at].sum()),
        "ctr": number(rate.value),
        "interval": pair(rate.low, rate.high),
        "lift": None if comparison is None else number(comparison.lift.value),
        "lift_interval": None if comparison is None else pair(comparison.lift.low, comparison.lift.high),
        "p": None if comparison is None else number(comparison.p),
        **_quality(evidence, version, settings),
        "errors": _errors(evidence, version),
    }


def _quality(evidence: Evidence, version: str, settings: ReportSettings) -> Json:
    """From the sample of answers that were joined with clicks."""
    joined = joined_of(evidence, version)
    rows = 0 if joined is None else len(joined.scores)
    nothing = Estimate(np.asarray(np.nan), np.asarray(np.nan))
    auc, calibrated = nothing, nothing
    if joined is not None and rows:
        auc = online_auc(joined.scores, joined.clicked, joined.units)
        calibrated = calibration(joined.scores, joined.clicked, joined.units)
    return {
        "auc": number(auc.value),
        "auc_interval": _around(auc, rows, settings),
        "calibration": number(calibrated.value),
        "calibration_interval": _around(calibrated, rows, settings),
        "joined": rows,
    }


def _errors(evidence: Evidence, version: str) -> Json:
    """`p` and `high` are beside the default's, over the epochs that both were in."""
    count = sum(arm.errors for epoch in evidence.epochs for arm in epoch.arms if arm.version == version)
    if version == evidence.default:
        return {"count": count, "p": None, "high": None}
    check = check_errors(evidence.epochs, version, evidence.default)
    return {"count": count, "p": check.p, "high": check.high}


def _epochs(evidence: Evidence, split: SplitState, settings: ReportSettings) -> list[Json]:
    return [_epoch(epoch, check, settings) for epoch, check in zip(evidence.epochs, split.checks, strict=True)]


def _epoch(epoch: Epoch, check: UnitCheck, settings: ReportSettings) -> Json:
    p = None if check.ln_factor is None else p_of(check.ln_factor)
    state = "collecting" if p is None else state_of(p, check.enough, settings)
    return {
        "epoch": epoch.number,
        "started": _iso(epoch.started),
        "ended": None if epoch.ended is None else _iso(epoch.ended),
        "coverage": epoch.coverage,
        "shares": {arm.version: arm.share for arm in epoch.arms},
        "units": {version: round(count / epoch.threshold) for version, count in check.counts.items()},
        "sampled": epoch.threshold,
        "units_in_two_arms": check.doubled,
        "srm": {"p": p, "state": state},
        "uncounted": dict(epoch.uncounted),
    }


def _around(estimate: Estimate, rows: int, settings: ReportSettings) -> list[float] | None:
    half = half_width(estimate, np.asarray(float(rows)), alpha=settings.alpha, planned=settings.planned_joined)
    return pair(estimate.value - half, estimate.value + half) if half > 0 else None


def number(value: Any) -> float | None:
    """A float that JSON can hold."""
    return float(value) if math.isfinite(value) else None


def pair(low: Any, high: Any) -> list[float] | None:
    return [float(low), float(high)] if math.isfinite(low) and math.isfinite(high) else None


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
