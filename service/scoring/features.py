"""The one definition of the features: training columns and request rows become the same tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from service.scoring.categorical import CategoricalField, MultiField
from service.scoring.columns import Column, number_column
from service.scoring.datetimes import DatetimeField
from service.scoring.encoded import Encoded
from service.scoring.fields import Field, Piece
from service.scoring.layout import IdColumn, Layout, NumericColumn, cross_spec
from service.scoring.numeric import NumericField, Scaler
from service.scoring.schema import SIDES, Feature, FeatureSchema
from service.scoring.values import MAX_PAIRS, DataError, EncodeError, Fault, FaultList, ValueFault

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class FeatureEncoder:
    """A fitted schema; `scalers` are the pickled objects by feature name, kept for publishing only."""

    schema: FeatureSchema
    fields: tuple[Field, ...]  # in the order of the tensors: user, context, item
    scalers: Mapping[str, Scaler] = field(default_factory=dict)
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", _layout(self.schema, self.fields))

    @classmethod
    def fit(cls, schema: FeatureSchema, table: pa.Table) -> FeatureEncoder:
        """Fit on the training part alone; raises DataError naming the column. An absent column is all missing."""
        fields: list[Field] = []
        scalers: dict[str, Scaler] = {}
        for feature in _ordered(schema):
            column = table_column(table, feature.name)
            if feature.kind == "numeric":
                numeric, scaler = NumericField.fit(feature, number_column(feature.name, column))
                fields.append(numeric)
                if scaler is not None:
                    scalers[feature.name] = scaler
            elif feature.kind == "categorical":
                fields.append(CategoricalField.fit(feature, column))
            elif feature.kind == "multi":
                fields.append(MultiField.fit(feature, column))
            else:
                fields.append(DatetimeField.fit(feature, column))
        return cls(schema, tuple(fields), scalers)

    def encode_table(self, table: pa.Table, sides: Sequence[str] = SIDES) -> Encoded:
        """All rows of a table; an absent column is missing. Raises DataError naming the column and the row."""
        fields = [one for one in self.fields if one.feature.side in sides]
        pieces = [one.encode_column(table_column(table, one.feature.name)) for one in fields]
        encoded = _assemble(fields, pieces, table.num_rows)
        for row in self._pair_faults(encoded, sides):
            raise DataError(self._bag_names(sides), _too_many_pairs().msg, row)
        return encoded

    def encode_rows(self, rows: Sequence[Row], sides: Sequence[str] = SIDES) -> Encoded:
        """Request values (B rows); other keys are not looked at. Raises EncodeError with loc (row, feature)."""
        faults = FaultList()
        fields = [one for one in self.fields if one.feature.side in sides]
        pieces = [one.encode_values([row.get(one.feature.name) for row in rows], faults) for one in fields]
        encoded = _assemble(fields, pieces, len(rows))
        if not faults.found:
            for row in self._pair_faults(encoded, sides):
                faults.add(row, self._bag_names(sides), _too_many_pairs())
        if faults.found:
            found = sorted(faults.found, key=_row)
            raise EncodeError([Fault((row, name), fault.msg, fault.type) for row, name, fault in found])
        return encoded

    @property
    def multiplies_bags(self) -> bool:
        """Whether a cross has more than one bag: only then can a row expand to many pairs."""
        return any(sum(is_bag for is_bag, _ in cross.members) > 1 for cross in self.layout.crosses)

    def too_many_pairs(self, encoded: Encoded) -> bool:
        """Whether a row of all sides has a cross that would expand to too many pairs."""
        return bool(self._pair_faults(encoded, SIDES))

    def check_pairs(self, encoded: Encoded) -> None:
        """Refuse a row of all sides whose crosses would expand to too many pairs; raises EncodeError."""
        for row in self._pair_faults(encoded, SIDES):
            raise EncodeError([Fault((row,), _too_many_pairs().msg, _too_many_pairs().type)])

    def _pair_faults(self, encoded: Encoded, sides: Sequence[str]) -> list[int]:
        """The first row that a cross expands too far, if any; only all sides together can tell."""
        if set(sides) != set(SIDES):
            return []
        lengths = [np.diff(bag.offsets) for bag in encoded.bags]
        for cross in self.layout.crosses:
            bags = [lengths[index] for is_bag, index in cross.members if is_bag]
            if len(bags) > 1:
                over = np.multiply.reduce(bags) > MAX_PAIRS
                if over.any():
                    return [int(over.argmax())]
        return []

    def _bag_names(self, sides: Sequence[str]) -> str:
        features = (one.feature for one in self.fields)
        return ", ".join(one.name for one in features if one.kind == "multi" and one.side in sides)


def table_column(table: pa.Table, name: str) -> Column:
    """The column, or one of nulls where the table has none."""
    if name in table.column_names:
        return table.column(name)
    return pa.chunked_array([pa.nulls(table.num_rows)])


def _row(fault: tuple[int, str, ValueFault]) -> int:
    return fault[0]


def _too_many_pairs() -> ValueFault:
    return ValueFault(f"a cross of this row would have more than {MAX_PAIRS} pairs; shorten its lists", "too_long")


def _ordered(schema: FeatureSchema) -> list[Feature]:
    return sorted(schema.features, key=lambda feature: SIDES.index(feature.side))


def _layout(schema: FeatureSchema, fields: Sequence[Field]) -> Layout:
    numerics: list[NumericColumn] = []
    ids: list[IdColumn] = []
    bags: list[IdColumn] = []
    for one in fields:
        feature = one.feature
        if feature.kind == "numeric":
            numerics.append(NumericColumn(feature.name, feature.side, feature.wide))
        (bags if feature.kind == "multi" else ids).extend(one.id_columns())
    crosses = [cross_spec(cross.name, cross.of, cross.buckets, ids, bags) for cross in schema.crosses]
    return Layout(tuple(numerics), tuple(ids), tuple(bags), tuple(crosses))


def _assemble(fields: Sequence[Field], pieces: Sequence[Piece], rows: int) -> Encoded:
    numerics = [piece.numeric for piece in pieces if piece.numeric is not None]
    ids = [column for piece in pieces for column in piece.ids]
    named = [(one.feature.name, piece) for one, piece in zip(fields, pieces, strict=True)]
    return Encoded(
        np.stack(numerics, axis=1) if numerics else np.zeros((rows, 0), np.float32),
        np.stack(ids, axis=1) if ids else np.zeros((rows, 0), np.int64),
        tuple(piece.bag for piece in pieces if piece.bag is not None),
        {name: piece.unknown for name, piece in named if piece.unknown},
        {name: piece.missing for name, piece in named if piece.missing},
    )
