"""How a worker comes by a version: read and checked by itself, or mapped from what was made ready for its whole host.

Blocking; raises ArtifactError with the reason.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from service.scoring.artifact import open_artifact
from service.scoring.catalog import Catalog
from service.scoring.device import FLOAT32
from service.scoring.files import ArtifactError
from service.scoring.predictor import Predictor
from service.scoring.prepared import attach, attach_catalog
from service.scoring.revisions import open_catalog
from service.scoring.warming import Clock, warm
from service.workers.memory import give_back
from service.workers.preparing import PrepareError, Preparing


@dataclass(frozen=True, slots=True)
class Computing:
    """Where versions run, in which precision, how far off the exam a faster one may be, and the largest request."""

    device: str = "cpu"
    precision: str = FLOAT32
    tolerance: float = 1e-3
    max_rows: int = 4096


class Opening(Protocol):
    """What the registry opens versions with, from one thread."""

    def version(self, name: str, revision: int, *, beside: bool = False) -> Predictor:
        """The version with a revision of its catalog, warm; `beside` others that answer, and are not to feel it."""
        ...

    def catalog(self, name: str, predictor: Predictor, revision: int) -> Catalog:
        """Another revision of the catalog of a version that is open; the caller puts it in the old one's place."""
        ...

    def close(self, name: str) -> None:
        """The version is not used any more."""
        ...


class Alone:
    """A worker that shares nothing."""

    def __init__(self, artifacts: Path, computing: Computing) -> None:
        self._artifacts, self._computing = artifacts, computing

    def version(self, name: str, revision: int, *, beside: bool = False) -> Predictor:
        how = self._computing
        opened = open_artifact(
            self._artifacts / name,
            device=how.device,
            revision=revision,
            precision=how.precision,
            precision_tolerance=how.tolerance,
        )
        _warm(opened.predictor, how.max_rows, beside)
        return opened.predictor

    def catalog(self, name: str, predictor: Predictor, revision: int) -> Catalog:
        return open_catalog(self._artifacts / name, predictor, revision)

    def close(self, name: str) -> None:
        pass


class Shared:
    """A worker among others: versions are made ready by a process of low priority, once a host, and mapped here."""

    def __init__(self, preparing: Preparing, computing: Computing) -> None:
        self._preparing, self._computing = preparing, computing
        self._held: dict[str, int] = {}  # the revision whose folder stays for those who come later

    def version(self, name: str, revision: int, *, beside: bool = False) -> Predictor:
        folder = self._ask(name, revision)
        try:
            how = self._computing
            predictor = attach(folder, device=how.device, precision=how.precision, precision_tolerance=how.tolerance)
        except BaseException:
            self._preparing.release(name, revision)
            raise
        self._held[name] = revision
        _warm(predictor, how.max_rows, beside)
        return predictor

    def catalog(self, name: str, predictor: Predictor, revision: int) -> Catalog:
        folder = self._ask(name, revision)
        try:
            catalog = attach_catalog(folder, device=self._computing.device)
            if catalog is None:
                raise ArtifactError("the version has no item key, and so no catalog")
        except BaseException:
            self._preparing.release(name, revision)
            raise
        # What is mapped stays, though its folder goes.
        before, self._held[name] = self._held[name], revision
        self._preparing.release(name, before)
        return catalog

    def close(self, name: str) -> None:
        if name in self._held:
            self._preparing.release(name, self._held.pop(name))

    def _ask(self, name: str, revision: int) -> Path:
        try:
            return self._preparing.ask(name, revision)
        except PrepareError as error:
            raise ArtifactError(str(error)) from None


def _warm(predictor: Predictor, max_rows: int, beside: bool) -> None:
    half = None if predictor.catalog is None else predictor.catalog.half
    # A device works while the thread waits for it.
    busy = time.thread_time if predictor.device == "cpu" else time.perf_counter
    clock = Clock(rests=3.0 if beside else 0.0, busy=busy)
    warm(predictor.engine, predictor.encoder.layout, half, max_rows, clock=clock)
    give_back()  # what opening and the largest batches took
