"""Units: their sub-bucket, their hash, and the sample of distinct ones that a worker has seen.

Two hashes that know nothing of each other, from one SHA-256 of (experiment/sub, 00, unit): the first 8 bytes give the
sub-bucket, the next 8 the hash by which units are sampled.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct

from service.experiments.evidence import SUB_BUCKETS
from service.state.counts import MOST_UNITS, limit

_HALVES = Struct(">B7xQ16x").unpack


class UnitHash:
    """The hashes of one experiment's units."""

    def __init__(self, experiment: str) -> None:
        self._prefix = experiment.encode("utf-8", "surrogatepass") + b"/sub\0"

    def __call__(self, unit: str) -> tuple[int, int]:
        """(sub-bucket, hash of 64 bits) of a unit in its canonical text."""
        digest = sha256(self._prefix + unit.encode("utf-8", "surrogatepass")).digest()
        first, hash_ = _HALVES(digest)
        return first * SUB_BUCKETS >> 8, hash_


class Seen:
    """The distinct units of one epoch's sample that this worker has met, each arm by itself."""

    def __init__(self) -> None:
        self.halvings = 0
        self._limit = limit(0)
        self._known: set[tuple[str, int]] = set()
        self._new: list[tuple[str, int]] = []

    def add(self, version: str, unit: int) -> None:
        """A unit was given to a version."""
        if unit < self._limit and (pair := (version, unit)) not in self._known:
            self._known.add(pair)
            self._new.append(pair)
            if len(self._known) > MOST_UNITS:
                self.halve(self.halvings + 1)

    def halve(self, halvings: int) -> None:
        """Let go of what a sample that was halved so often has not."""
        if halvings > self.halvings:
            self.halvings, self._limit = halvings, limit(halvings)
            self._known = {pair for pair in self._known if pair[1] < self._limit}

    def take(self) -> list[tuple[str, int]]:
        """(version, hash) of what was met since it was last asked."""
        new, self._new = self._new, []
        return new

    def give_back(self, pairs: list[tuple[str, int]]) -> None:
        """What was taken could not be stored."""
        self._new += pairs
