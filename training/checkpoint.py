"""Checkpoints of a fit: written aside and renamed, the last two kept, gone when the version is published.

They lie in `<artifacts>/.checkpoints/<version>/`, by number. A kill at any moment leaves whole ones alone: what is
half written has a name that no reader looks for.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import pickle
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from service.scoring.files import check_room, named, sync
from training.errors import FitError

log = logging.getLogger("training")

CHECKPOINTS = ".checkpoints"
KEPT = 2
_CODE = 1 << 20  # bytes that a checkpoint takes beside its tensors, at most
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
        with named(self._folder):
            return self._save({"purpose": self._purpose, "state": dict(state)})

    def _save(self, content: dict[str, Any]) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        check_room(self._folder, _bytes(content) + _CODE)
        found = self._found()
        number = 1 + (int(found[-1].stem) if found else 0)
        aside, path = self._folder / f"{number}.part", self._folder / f"{number}.pt"
        with aside.open("wb") as file:
            torch.save(content, file)
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


@contextmanager
def claimed(artifacts: Path, version: str) -> Iterator[None]:
    """Hold the name `version`: two fits of one name would remove each other's checkpoints. Raises FitError.

    The claim ends with the process, however that ends.
    """
    home = artifacts / CHECKPOINTS
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{version}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FitError(
                f"another fit of version '{version}' is at work in {artifacts}; wait for it or choose another name"
            ) from None
        except OSError:  # a file system without locks
            log.info("no lock can be held in %s", home)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _bytes(value: Any) -> int:
    """What the tensors in nested lists and dictionaries take."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, Mapping):
        return sum(map(_bytes, value.values()))
    return sum(map(_bytes, value)) if isinstance(value, list | tuple) else 0


def purpose(**parts: Any) -> str:
    """One text for all that a checkpoint must agree with; `parts` are JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
