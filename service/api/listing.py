"""What GET /models shows: every version on disk or in the document, as all workers together have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from service.changes import Changed
from service.scoring.artifact import read_manifest, version_names
from service.scoring.files import ArtifactError
from service.scoring.revisions import list_revisions
from service.state import Document, VersionState, Worker
from service.state.workers import overall, replicas

Manifests = Mapping[str, Mapping[str, Any] | ArtifactError]


def manifests(root: Path) -> Manifests:
    """The manifest of each version on disk, or why it cannot be read. Blocks."""
    found: dict[str, Mapping[str, Any] | ArtifactError] = {}
    for version in version_names(root):
        try:
            found[version] = read_manifest(root / version)
        except ArtifactError as error:
            found[version] = error
    return found


def listing(document: Document, workers: Sequence[Worker], found: Manifests) -> dict[str, Any]:
    """The whole of GET /models."""
    versions = sorted({*found, *document.loaded, *document.needed})
    return {
        "models": [model(version, document, workers, found.get(version)) for version in versions],
        **split(document),
        "replicas": [
            {"id": replica, "epoch": epoch, "seen": iso(since)} for replica, (epoch, since) in replicas(workers).items()
        ],
    }


def model(
    version: str, document: Document, workers: Sequence[Worker], manifest: Mapping[str, Any] | ArtifactError | None
) -> dict[str, Any]:
    """One version's entry."""
    found = overall(version, workers)
    if isinstance(manifest, ArtifactError):
        found = found if found.state == "ready" else VersionState("failed", found.error or str(manifest))
        manifest = None
    manifest = manifest or {}
    return {
        "version": version,
        "state": found.state,
        "weight": document.weights.get(version, 0),
        "share": document.shares.get(version, 0.0),
        "error": found.error,
        "metrics": manifest.get("metrics"),
        "created": manifest.get("created"),
    }


def catalog(path: Path, current: int) -> dict[str, Any] | None:
    """The catalog of the version in folder `path`, that is to be served at revision `current`; None where it has none.
    Blocks."""
    revisions = list_revisions(path)
    if not revisions and not current:
        return None
    rows = next((one.rows for one in revisions if one.number == current), None)
    there = [{"revision": one.number, "rows": one.rows, "created": one.created} for one in revisions]
    return {"revision": current, "rows": rows, "revisions": there}


def split(document: Document) -> dict[str, Any]:
    """The split of a document."""
    return {
        "weights": document.weights,
        "coverage": document.coverage,
        "default": document.default,
        "shadow": document.shadow,
        "experiment": document.experiment,
        "epoch": document.epoch,
    }


def changed(change: Changed) -> dict[str, Any]:
    """The answer to a change of the split."""
    answer = {**split(change.new), "shares": change.new.shares, "comment": change.new.comment}
    answer["moved_fraction"] = change.moved
    if change.warnings:
        answer["warnings"] = change.warnings
    return answer


def past(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """The history's rows, newest first, each with the split before it."""
    before = {row.epoch: row.traffic for row in rows}
    return [
        {
            "epoch": row.epoch,
            "who": row.who,
            "when": iso(row.at),
            "from": before.get(row.epoch - 1),
            "to": row.traffic,
            "comment": row.traffic["comment"],
        }
        for row in rows
    ]


def iso(seconds: float) -> str:
    """A time in seconds since 1970 as ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
