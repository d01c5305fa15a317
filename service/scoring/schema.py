"""The feature schema: what a version reads, as a frozen value parsed from TOML or from a manifest."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KINDS = ("numeric", "categorical", "multi", "datetime")
SIDES = ("user", "context", "item")
SCALERS = ("minmax", "standard", "log1p-minmax", "none")
PARTS = ("hour", "weekday", "month")

# What each kind of feature may set beside name, kind and side.
_KEYS = {
    "numeric": {"scaler", "bins", "dim", "wide"},
    "categorical": {"dim", "min_count", "buckets", "wide"},
    "multi": {"dim", "min_count", "buckets", "wide"},
    "datetime": {"parts", "tz", "dim", "wide"},
}
_MAX_TABLE = 1 << 31


class SchemaError(ValueError):
    """A feature schema that cannot be: one plain sentence that says what, where and the nearest known name."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One raw feature: how its value is read and what columns of the model it becomes."""

    name: str
    kind: str
    side: str
    scaler: str = "minmax"
    bins: tuple[float, ...] = ()
    dim: int = 8
    min_count: int = 1
    buckets: int = 0
    wide: bool = False
    parts: tuple[str, ...] = ()
    tz: str = "UTC"

    def id_columns(self) -> tuple[str, ...]:
        """Names of the categorical columns this feature gives."""
        if self.kind == "numeric":
            return (f"{self.name}.bin",) if self.bins else ()
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
        parsed = tuple(_feature(table, f"[[features]] number {n}") for n, table in enumerate(features, 1))
        names = [feature.name for feature in parsed]
        if twice := _first_repeated(names):
            raise SchemaError(f"feature '{twice}' is defined twice")
        columns = [column for feature in parsed for column in feature.id_columns()]
        columns += [feature.name for feature in parsed if feature.kind == "numeric"]
        if twice := _first_repeated(columns):
            raise SchemaError(f"two features give a column named '{twice}'")
        schema = cls(parsed, tuple(_cross(table, parsed) for table in crosses), unit, item)
        if twice := _first_repeated([cross.name for cross in schema.crosses]):
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
        return cls.parse(data["features"], data["crosses"], unit=data["unit"], item=data["item"])

    def of_side(self, *sides: str) -> tuple[Feature, ...]:
        return tuple(feature for feature in self.features if feature.side in sides)


def nearest(name: str, known: Iterable[str]) -> str:
    """' (did you mean 'x'?)' for the known name that looks most like `name`, or an empty string."""
    close = difflib.get_close_matches(name[:100], list(known), n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""


def _feature(table: Mapping[str, Any], where: str) -> Feature:
    table = _require_mapping(table, where)
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise SchemaError(f"{where}: 'name' must be a text that is not empty")
    where = f"feature '{name}'"
    kind = _choice(table, "kind", KINDS, where)
    side = _choice(table, "side", SIDES, where)
    known = {"name", "kind", "side"} | _KEYS[kind]
    fields = {field.name for field in dataclasses.fields(Feature)}
    for key in table:
        if key in fields and key not in known:
            raise SchemaError(f"{where}: '{key}' has no meaning for kind '{kind}'")
        if key not in known:
            raise SchemaError(f"{where}: unknown key '{key}'{nearest(key, known)}")
    values: dict[str, Any] = {"name": name, "kind": kind, "side": side}
    if "scaler" in table:
        values["scaler"] = _choice(table, "scaler", SCALERS, where)
    for key, least in (("dim", 1), ("min_count", 1), ("buckets", 0)):
        if key in table:
            values[key] = _integer(table[key], least, f"{where}: '{key}'")
    if "wide" in table:
        if not isinstance(table["wide"], bool):
            raise SchemaError(f"{where}: 'wide' must be true or false")
        values["wide"] = table["wide"]
    if "bins" in table:
        values["bins"] = _edges(table["bins"], where)
    if kind == "datetime":
        values["parts"] = _parts(table.get("parts"), where)
        values["tz"] = _zone(table.get("tz", "UTC"), where)
    return Feature(**values)


def _require_mapping(table: object, where: str) -> Mapping[str, Any]:
    if not isinstance(table, Mapping):
        raise SchemaError(f"{where}: a table is needed")
    return table


def _choice(table: Mapping[str, Any], key: str, known: tuple[str, ...], where: str) -> str:
    value = table.get(key)
    if isinstance(value, str) and value in known:
        return value
    shown = f"'{value}'" if isinstance(value, str) else "missing" if value is None else "not a text"
    hint = nearest(value, known) if isinstance(value, str) else ""
    raise SchemaError(f"{where}: '{key}' is {shown}; it must be one of {', '.join(known)}{hint}")


def _integer(value: object, least: int, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _MAX_TABLE:
        raise SchemaError(f"{where} must be an integer of at least {least}")
    return value


def _edges(value: object, where: str) -> tuple[float, ...]:
    if isinstance(value, str):
        raise SchemaError(f'{where}: bins = "{value}" is not built yet; give the edges as a list of numbers')
    if not isinstance(value, list | tuple) or not value:
        raise SchemaError(f"{where}: 'bins' must be a list of numbers")
    for edge in value:
        if isinstance(edge, bool) or not isinstance(edge, int | float) or not math.isfinite(edge):
            raise SchemaError(f"{where}: 'bins' must hold finite numbers")
    if any(a >= b for a, b in itertools.pairwise(value)):
        raise SchemaError(f"{where}: 'bins' must rise strictly")
    return tuple(float(edge) for edge in value)


def _parts(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise SchemaError(f"{where}: 'parts' must be a list of {', '.join(PARTS)}")
    for part in value:
        if part not in PARTS:
            raise SchemaError(f"{where}: unknown part '{part}'{nearest(str(part), PARTS)}")
    if twice := _first_repeated(list(value)):
        raise SchemaError(f"{where}: part '{twice}' is named twice")
    return tuple(value)


def _zone(value: object, where: str) -> str:
    if isinstance(value, str):
        try:
            zoneinfo.ZoneInfo(value)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            pass
        else:
            return value
    raise SchemaError(f"{where}: tz '{value}' is not a known IANA zone")


def _cross(table: Mapping[str, Any], features: tuple[Feature, ...]) -> Cross:
    table = _require_mapping(table, "[[crosses]]")
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
    if twice := _first_repeated(list(of)):
        raise SchemaError(f"{where}: '{twice}' is named twice")
    return Cross(tuple(of), _integer(table.get("buckets", 10_000), 1, f"{where}: 'buckets'"))


def _first_repeated(names: list[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _compact(feature: Feature) -> dict[str, Any]:
    known = ("name", "kind", "side", *sorted(_KEYS[feature.kind]))
    values = {key: getattr(feature, key) for key in known}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items() if value != ()}
