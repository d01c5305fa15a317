"""The document that all workers of all replicas follow: what is loaded and how the traffic is split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypedDict

from service.traffic import Split, shares_of

# What a change of traffic changes; a comment belongs to the change, not to the traffic.
TRAFFIC = ("weights", "coverage", "default", "shadow", "experiment")


class Shadow(TypedDict):
    """A version that scores a fraction of the requests after others have answered them."""

    version: str
    fraction: float


@dataclass(frozen=True, slots=True)
class Document:
    """A frozen value: `epoch` counts changes of the traffic, `revision` those of any kind (loads too).

    `weights` holds versions with weight alone, of any positive sum. `loaded` has, for every version to be loaded, the
    revision at which that was last asked for: a worker that failed before then tries again. `catalogs` has the catalog
    revision of each of them that is not at 0; a change of it asks for the version anew. Epoch 0: no split yet.
    """

    epoch: int = 0
    revision: int = 0
    weights: Mapping[str, float] = field(default_factory=dict)
    coverage: float = 1.0
    default: str | None = None
    shadow: Shadow | None = None
    experiment: str = "default"
    comment: str = ""
    loaded: Mapping[str, int] = field(default_factory=dict)
    catalogs: Mapping[str, int] = field(default_factory=dict)

    @property
    def shares(self) -> dict[str, float]:
        """weight / sum of each version with weight."""
        return shares_of(self.weights)

    @property
    def needed(self) -> frozenset[str]:
        """The versions that must be ready for every request to be answered: those with weight, and the default."""
        return frozenset(self.weights) | ({self.default} if self.default else frozenset())

    @property
    def named(self) -> frozenset[str]:
        """The versions that the traffic names: those needed, and the one that shadows."""
        return self.needed | ({self.shadow["version"]} if self.shadow else frozenset())

    def catalog(self, version: str) -> int:
        """The catalog revision that a version is to be served with."""
        return self.catalogs.get(version, 0)

    def split(self) -> Split:
        """The split as a value that assigns; without a default it answers with the version "", which nobody has."""
        return Split(self.experiment, tuple(self.weights.items()), self.coverage, self.default or "")

    def traffic(self) -> dict[str, Any]:
        """What a change of traffic changes, and its comment."""
        return {name: getattr(self, name) for name in TRAFFIC} | {"comment": self.comment}

    def same_traffic(self, other: Document) -> bool:
        """Whether both split the traffic alike, comments aside."""
        return all(getattr(self, name) == getattr(other, name) for name in TRAFFIC)

    def with_traffic(self, traffic: Mapping[str, Any]) -> Document:
        """This document with the traffic of another; epoch and revision stay."""
        return replace(self, **{name: traffic[name] for name in (*TRAFFIC, "comment")})

    def body(self) -> dict[str, Any]:
        """Everything but the two counters, as JSON."""
        values = asdict(self)
        return {name: values[name] for name in (*TRAFFIC, "comment", "loaded", "catalogs")}
