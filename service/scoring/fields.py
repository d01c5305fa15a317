"""What every kind of feature has in common: the piece of the tensors that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from service.scoring.columns import Column
from service.scoring.encoded import Bag, Floats, Ints
from service.scoring.layout import MISSING, UNKNOWN, IdColumn
from service.scoring.schema import Feature
from service.scoring.values import FaultList


@dataclass(frozen=True, slots=True)
class Piece:
    """B rows of one feature: its scaled number, id columns or bag, and how many values were unknown or missing."""

    numeric: Floats | None = None
    ids: tuple[Ints, ...] = ()
    bag: Bag | None = None
    unknown: int = 0
    missing: int = 0


class Field(Protocol):
    """A fitted feature: the same piece from request values and from an Arrow column."""

    @property
    def feature(self) -> Feature: ...

    def id_columns(self) -> list[IdColumn]: ...

    def encode_values(self, values: Sequence[object], faults: FaultList) -> Piece: ...

    def encode_column(self, column: Column) -> Piece: ...


def missing_id(missing: int) -> int:
    """The id of a missing value: its own where training saw `missing` of them, else the unknown one."""
    return MISSING if missing else UNKNOWN


def column_of(feature: Feature, name: str, size: int, rare: int, missing: int) -> IdColumn:
    return IdColumn(name, feature.name, feature.side, size, feature.dim, feature.wide, rare > 0, missing > 0)
