"""The feature schema: what a version reads, as a frozen value parsed from TOML or from a manifest."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.scoring.schema_checks import (
    SchemaError,
    bin_rule,
    choice,
    edges,
    first_repeated,
    integer,
    nearest,
    parts,
    require_mapping,
    zone,
)

__all__ = ["KINDS", "SCALERS", "SIDES", "Cross", "Feature", "FeatureSchema", "SchemaError", "nearest"]

KINDS = ("numeric", "categorical", "multi", "datetime")
SIDES = ("user", "context", "item")
SCALERS = ("minmax", "standard", "log1p-minmax", "none")

# What each kind of feature may set beside name, kind and side.
_KEYS = {
    "numeric": {"scaler", "bins", "dim", "wide"},
    "categorical": {"dim", "min_count", "buckets", "wide"},
    "multi": {"dim", "min_count", "buckets", "wide"},
    "datetime": {"parts", "tz", "dim", "wide"},
}


@dataclass(frozen=True, slots=True)
class Feature:
    """One raw feature: how its value is read and what columns of the model it becomes.

    `rule` ("quantile:16") says how training finds the edges in `bins`; the schema of a version has edges alone.
    """

    name: str
    kind: str
    side: str
    scaler: str = "minmax"
    bins: tuple[float, ...] = ()
    rule: str = ""
    dim: int = 8
    min_count: int = 1
    buckets: int = 0
    wide: bool = False
    parts: tuple[str, ...] = ()
    tz: str = "UTC"

    def id_columns(self) -> tuple[str, ...]:
        """Names of the categorical columns this feature gives."""
        if self.kind == "numeric":
            return (f"{self.name}.bin",) if self.bins or self.rule else ()
        if self.kind == "datetime":
            return tuple(f"{self.name}.{part}" for part in self.parts)
        return (self.name,)


@dataclass(frozen=True, slots=True)
class Cross:
    """A wide cross-product of categorical columns, hashed into `buckets` where it does not fit exactly."""

    of: tuple[str, ...]
    buckets: int = 10_000

    @property
    def name(self) -> str:
        return " x ".join(self.of)


@dataclass(frozen=True, slots=True)
class FeatureSchema:
    """All features and crosses of a version, with the names of its unit and item key."""

    features: tuple[Feature, ...]
    crosses: tuple[Cross, ...] = ()
    unit: str | None = None
    item: str | None = None

    @classmethod
    def parse(
        cls,
        features: Sequence[Mapping[str, Any]],
        crosses: Sequence[Mapping[str, Any]] = (),
        *,
        unit: str | None = None,
        item: str | None = None,
    ) -> FeatureSchema:
        """Check the `[[features]]` and `[[crosses]]` tables of a config; raises SchemaError."""
        if not features:
            raise SchemaError("[[features]]: at least one feature is needed")
        for key, role in ((unit, "unit"), (item, "item")):
            if key is not None and (not isinstance(key, str) or not key):
                raise SchemaError(f"'{role}' must be a column's name")
        parsed = tuple(_feature(table, f"[[features]] number {n}") for n, table in enumerate(features, 1))
        names = [feature.name for feature in parsed]
        if twice := first_repeated(names):
            raise SchemaError(f"feature '{twice}' is defined twice")
        columns = [column for feature in parsed for column in feature.id_columns()]
        columns += [feature.name for feature in parsed if feature.kind == "numeric"]
        if twice := first_repeated(columns):
            raise SchemaError(f"two features give a column named '{twice}'")
        schema = cls(parsed, tuple(_cross(table, parsed) for table in crosses), unit, item)
        if twice := first_repeated([cross.name for cross in schema.crosses]):
            raise SchemaError(f"cross '{twice}' is defined twice")
        for key, wanted in ((unit, "item"), (item, "user")):
            for feature in parsed:
                if key and feature.name == key and feature.side == wanted:
                    raise SchemaError(f"feature '{key}' has side '{wanted}', which its role in [data] contradicts")
        return schema

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` is the inverse."""
        return {
            "features": [_compact(feature) for feature in self.features],
            "crosses": [{"of": list(cross.of), "buckets": cross.buckets} for cross in self.crosses],
            "unit": self.unit,
            "item": self.item,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FeatureSchema:
        """The inverse of `to_dict`; raises SchemaError for anything else."""
        try:
            return cls.parse(data["features"], data["crosses"], unit=data["unit"], item=data["item"])
        except (KeyError, TypeError, AttributeError) as error:
            raise SchemaError(f"no feature schema ({type(error).__name__}: {error})") from None

    def of_side(self, *sides: str) -> tuple[Feature, ...]:
        return tuple(feature for feature in self.features if feature.side in sides)


def _feature(table: Mapping[str, Any], where: str) -> Feature:
    table = require_mapping(table, where)
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise SchemaError(f"{where}: 'name' must be a text that is not empty")
    where = f"feature '{name}'"
    kind = choice(table, "kind", KINDS, where)
    side = choice(table, "side", SIDES, where)
    known = {"name", "kind", "side"} | _KEYS[kind]
    fields = {field.name for field in dataclasses.fields(Feature)} - {"rule"}
    for key in table:
        if key in fields and key not in known:
            raise SchemaError(f"{where}: '{key}' has no meaning for kind '{kind}'")
        if key not in known:
            raise SchemaError(f"{where}: unknown key '{key}'{nearest(key, known)}")
    values: dict[str, Any] = {"name": name, "kind": kind, "side": side}
    if "scaler" in table:
        values["scaler"] = choice(table, "scaler", SCALERS, where)
    for key, least in (("dim", 1), ("min_count", 1), ("buckets", 0)):
        if key in table:
            values[key] = integer(table[key], least, f"{where}: '{key}'")
    if "wide" in table:
        if not isinstance(table["wide"], bool):
            raise SchemaError(f"{where}: 'wide' must be true or false")
        values["wide"] = table["wide"]
    if "bins" in table:
        values |= (
            bin_rule(table["bins"], where) if isinstance(table["bins"], str) else {"bins": edges(table["bins"], where)}
        )
    if kind == "datetime":
        values["parts"] = parts(table.get("parts"), where)
        values["tz"] = zone(table.get("tz", "UTC"), where)
    return Feature(**values)


def _cross(table: Mapping[str, Any], features: tuple[Feature, ...]) -> Cross:
    table = require_mapping(table, "[[crosses]]")
    columns = [column for feature in features for column in feature.id_columns()]
    of = table.get("of")
    if not isinstance(of, list | tuple) or len(of) < 2 or not all(isinstance(name, str) for name in of):
        raise SchemaError("[[crosses]]: 'of' must be a list of at least two column names")
    where = f"cross '{' x '.join(of)}'"
    for key in table:
        if key not in ("of", "buckets"):
            raise SchemaError(f"{where}: unknown key '{key}'{nearest(key, ('of', 'buckets'))}")
    for name in of:
        if name not in columns:
            numeric = any(feature.name == name and feature.kind == "numeric" for feature in features)
            hint = "; a numeric feature is crossed by its bins" if numeric else nearest(name, columns)
            raise SchemaError(f"{where}: '{name}' is no categorical column{hint}")
    if twice := first_repeated(list(of)):
        raise SchemaError(f"{where}: '{twice}' is named twice")
    return Cross(tuple(of), integer(table.get("buckets", 10_000), 1, f"{where}: 'buckets'"))


def _compact(feature: Feature) -> dict[str, Any]:
    known = ("name", "kind", "side", *sorted(_KEYS[feature.kind]))
    values = {key: getattr(feature, key) for key in known}
    if feature.rule:
        values["bins"] = feature.rule
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items() if value != ()}
