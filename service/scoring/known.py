"""Feature names over all versions in the artifacts, loaded or not: what a request may name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from service.scoring.artifact import read_manifest, version_names
from service.scoring.files import MANIFEST, ArtifactError
from service.scoring.schema import FeatureSchema


def folder_state(root: Path) -> list[tuple[str, int]]:
    """Each version with the time of its manifest: differs once a version came, went or was replaced."""
    return [(name, (root / name / MANIFEST).stat().st_mtime_ns) for name in version_names(root)]


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The sides on which each name stands in some version; a unit key is the user's, an item key the item's."""

    sides: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def scan(cls, root: Path) -> KnownNames:
        """Read every manifest under `root`; one that cannot be read contributes nothing."""
        schemas = []
        for name in version_names(root):
            try:
                schemas.append(FeatureSchema.from_dict(read_manifest(root / name)["schema"]))
            except ArtifactError:
                continue
        return cls.of(schemas)

    @classmethod
    def of(cls, schemas: list[FeatureSchema]) -> KnownNames:
        sides: dict[str, set[str]] = {}
        for schema in schemas:
            for feature in schema.features:
                sides.setdefault(feature.name, set()).add(feature.side)
            for key, side in ((schema.unit, "user"), (schema.item, "item")):
                if key is not None:
                    sides.setdefault(key, set()).add(side)
        return cls({name: frozenset(found) for name, found in sides.items()})

    def side(self, name: str) -> frozenset[str]:
        """The sides on which `name` is known, none where no version knows it."""
        return self.sides.get(name, frozenset())
