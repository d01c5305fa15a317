"""What stands beside the figures in a report, the shadow and the plan, from the store; and what a plan hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from service.experiments.course import course_of, told
from service.experiments.evidence import Evidence
from service.experiments.guardrails import Heard
from service.experiments.planner import Hearing
from service.experiments.reports import Reports
from service.experiments.shadow_report import Found, read_shadow, shadow_report
from service.scoring.artifact import read_manifest
from service.scoring.files import ArtifactError
from service.state import Transaction
from service.state import plans as stored

T = TypeVar("T")
Json = dict[str, Any]

# An interval of fewer clicks is not to be trusted, and a plan acts on it.
LEAST_CLICKS = 100
# A guardrail is to act in a few seconds.
HEARD_SECONDS = 2.0


class View(Protocol):
    """What the control plane lets be read."""

    async def read(self, view: Callable[[Transaction], T]) -> T: ...


class ShadowReports:
    """The shadow's part of the report of an experiment; manifests are read from the artifacts."""

    def __init__(self, view: View, artifacts: Path) -> None:
        self._view, self._artifacts = view, artifacts

    async def __call__(self, evidence: Evidence) -> Json | None:
        found = await self._view.read(lambda view: read_shadow(view, evidence.experiment))
        return None if found is None else await asyncio.to_thread(self._report, found, evidence)

    def _report(self, found: Found, evidence: Evidence) -> Json:
        named = {found.version, evidence.default, *(pair.version for pair, _ in found.sums)}
        manifests: dict[str, Json] = {}
        for version in named - {""}:
            try:
                manifests[version] = read_manifest(self._artifacts / version)
            except ArtifactError:  # its folder may be gone
                continue
        return shadow_report(found, evidence.default, evidence.joined, manifests)


class PlanReports:
    """The plan's part of the report of an experiment."""

    def __init__(self, view: View) -> None:
        self._view = view

    async def __call__(self, evidence: Evidence) -> Json | None:
        row = await self._view.read(lambda view: stored.read_plan(view, evidence.experiment))
        return None if row is None else told(course_of(row))


def hears(reports: Reports) -> Hearing:
    """What plans hear: from reports that are a few seconds old at most."""

    async def hear(experiment: str, version: str) -> Heard:
        return heard_of(await reports.recent(experiment, HEARD_SECONDS), version)

    return hear


def heard_of(report: Json | None, version: str) -> Heard:
    """What a report says of a version: its lift once it and the default have enough clicks, the state of the split, and
    the reasons where its shadow is suspected."""
    if report is None:
        return Heard()
    arms = {one["version"]: one for one in report["versions"]}
    mine, base = arms.get(version), arms.get(report["default"])
    lift = None
    if mine and base and min(mine["clicks"], base["clicks"]) >= LEAST_CLICKS and mine["lift_interval"]:
        lift = (mine["lift_interval"][0], mine["lift_interval"][1])
    shadow = report["shadow"]
    reasons = shadow["leak"]["reasons"] if shadow and shadow["version"] == version else []
    return Heard(lift, report["srm"]["state"], "; ".join(reasons) or None)
