"""Request bodies made from a version's feature schema: any service can be loaded without knowing its data."""

import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def read_items(source: str) -> list[str]:
    """Item ids: `source` is a file with one id a line, or a number n for the ids 1 to n."""
    if source.isdecimal():
        return [str(number) for number in range(1, int(source) + 1)]
    return [line.strip() for line in Path(source).read_text(encoding="utf-8").splitlines() if line.strip()]


def union(schemas: Sequence[Json]) -> Json:
    """One schema with every feature that any of the versions knows; what a version does not know it ignores."""
    features = {feature["name"]: feature for schema in schemas for feature in schema["features"]}
    keys = {key: next((schema[key] for schema in schemas if schema.get(key)), None) for key in ("unit", "item")}
    return {"features": list(features.values()), **keys}


class Bodies:
    """Bodies for one gateway: users and contexts drawn anew for each request, candidates drawn from `items`."""

    def __init__(self, schema: Json, items: Sequence[str], *, units: int = 10_000, seed: int | None = None) -> None:
        self.features: list[Json] = schema["features"]
        self.item_key: str | None = schema.get("item")
        self.items = items
        self.units = units
        self.random = random.Random(seed)

    def ranking(self, candidates: int) -> Json:
        """A ranking request; candidates repeat where the list is shorter than their number."""
        return {
            "unit_id": self.unit(),
            "user": self.values("user"),
            "context": self.values("context"),
            "candidates": self.random.choices(self.items, k=candidates),
        }

    def rows(self, instances: int) -> Json:
        one_row = [self.values("user", "item", "context") for _ in range(instances)]
        return {"unit_id": self.unit(), "instances": one_row}

    def unit(self) -> str:
        return f"load-{self.random.randrange(self.units)}"

    def values(self, *sides: str) -> Json:
        return {feature["name"]: self.value(feature) for feature in self.features if feature["side"] in sides}

    def value(self, feature: Mapping[str, Any]) -> object:
        kind = feature["kind"]
        if kind == "numeric":
            return round(self.random.uniform(0, 100), 2)
        if kind == "datetime":
            return int(time.time())
        if kind == "multi":
            return [f"value-{self.random.randrange(20)}" for _ in range(self.random.randint(1, 3))]
        if feature["name"] == self.item_key:
            return self.random.choice(self.items)
        return f"value-{self.random.randrange(20)}"
