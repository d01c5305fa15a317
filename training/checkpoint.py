"""Checkpoints of a fit: written aside and renamed, the last two kept, gone when the version is published.

They lie in `<artifacts>/.checkpoints/<version>/`, by number. A kill at any moment leaves whole ones alone: what is
half written has a name that no reader looks for.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pickle
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from service.scoring.files import sync
from training.errors import FitError

log = logging.getLogger("training")

CHECKPOINTS = ".checkpoints"
KEPT = 2
MINUTES = 5.0  # what a kill costs at most, for a second of writing or so


class Checkpoints:
    """The checkpoints of one version that is being trained; `purpose` names the config and data that they fit."""

    def __init__(self, artifacts: Path, version: str, purpose: str, minutes: float = MINUTES) -> None:
        self._folder = artifacts / CHECKPOINTS / version
        self._purpose, self._seconds = purpose, minutes * 60
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        return time.monotonic() - self._last >= self._seconds

    def save(self, state: Mapping[str, Any]) -> Path:
        """Write the next one, durably; returns its path."""
        self._folder.mkdir(parents=True, exist_ok=True)
        found = self._found()
        number = 1 + (int(found[-1].stem) if found else 0)
        aside, path = self._folder / f"{number}.part", self._folder / f"{number}.pt"
        with aside.open("wb") as file:
            torch.save({"purpose": self._purpose, "state": dict(state)}, file)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)
        sync(self._folder)
        for old in [*found[: len(found) + 1 - KEPT], *self._folder.glob("*.part")]:
            old.unlink(missing_ok=True)
        self._last = time.monotonic()
        return path

    def newest(self) -> dict[str, Any] | None:
        """The state of the newest whole one, on the CPU, None where there is none.

        Raises FitError where it is of another fit.
        """
        for path in reversed(self._found()):
            try:
                # The loader that takes tensors and plain values, and runs nothing.
                found = torch.load(path, map_location="cpu", weights_only=True)
            except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
                log.warning("warning: %s cannot be read (%s)", path, str(error).splitlines()[0][:100])
                continue
            if found["purpose"] != self._purpose:
                raise FitError(
                    f"{path} is of another config, data, device or number of processes; "
                    "train without --resume, or under another version name"
                )
            state: dict[str, Any] = found["state"]
            return state
        return None

    def clear(self) -> None:
        """Remove them all."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _found(self) -> list[Path]:
        whole = [path for path in self._folder.glob("*.pt") if path.stem.isdecimal()]
        return sorted(whole, key=lambda path: int(path.stem))


def purpose(**parts: Any) -> str:
    """One text for all that a checkpoint must agree with; `parts` are JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
