"""What an empty state store starts with."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path

from service import changes, logs
from service.config import Settings
from service.scoring.artifact import read_manifest, version_names
from service.scoring.files import ArtifactError
from service.state import StateStore


class BadStart(Exception):
    """The options name what is not there: one plain line that says what."""


def fill(store: StateStore, settings: Settings) -> None:
    """Give a store that nothing was ever written to its first document; blocks, raises BadStart or StateError."""
    if store.revision() == 0:
        loaded, weights = first_split(settings)
        with store.transaction() as change:
            changes.start(change, loaded, weights)


def first_split(settings: Settings) -> tuple[list[str], dict[str, float]]:
    """(versions to load, weights) by `--load` and `--weights`; BadStart where a version named is not there."""
    names = version_names(settings.artifacts)
    for version in settings.weights or {}:
        if version not in names:
            there = f"there are {', '.join(names)}" if names else "there are none"
            raise BadStart(f"--weights: no version '{version}' in {settings.artifacts} ({there})")
    newest = newest_version(settings.artifacts, names)
    if settings.load == "all":
        loaded = names
    else:
        loaded = [newest] if settings.load == "newest" and newest else []
    if settings.weights is not None:
        return loaded, settings.weights
    return loaded, {newest: 1.0} if loaded and newest else {}


def newest_version(root: Path, names: list[str]) -> str | None:
    """The version created last; one whose manifest cannot be read is no candidate."""
    created = []
    for name in names:
        try:
            created.append((datetime.fromisoformat(str(read_manifest(root / name)["created"])).timestamp(), name))
        except (ArtifactError, ValueError) as error:
            logs.event("manifest not readable", level=logging.WARNING, version=name, error=str(error))
    return max(created)[1] if created else None
