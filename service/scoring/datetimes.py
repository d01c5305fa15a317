"""A datetime feature: the request's instant as hour, weekday or month in the version's own zone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.scoring.columns import Column, seconds_column
from service.scoring.encoded import Ints
from service.scoring.fields import Piece, column_of, missing_id
from service.scoring.layout import FIRST_VALUE, IdColumn
from service.scoring.schema import Feature
from service.scoring.timeparts import SIZES, time_part
from service.scoring.values import FaultList, epoch_seconds


@dataclass(frozen=True, slots=True)
class DatetimeField:
    """`missing` counts the training values that were missing."""

    feature: Feature
    missing: int

    @classmethod
    def fit(cls, feature: Feature, column: Column) -> DatetimeField:
        return cls(feature, int(seconds_column(feature.name, column)[1].sum()))

    def id_columns(self) -> list[IdColumn]:
        feature = self.feature
        sizes = [FIRST_VALUE + SIZES[part] for part in feature.parts]
        names = feature.id_columns()
        return [column_of(feature, name, size, 0, self.missing) for name, size in zip(names, sizes, strict=True)]

    def encode_values(self, values: Sequence[object], faults: FaultList) -> Piece:
        read = [faults.guard(row, self.feature.name, epoch_seconds, value) for row, value in enumerate(values)]
        missing = np.array([one is None for one in read], bool)
        return self._piece(np.array([one or 0 for one in read], np.int64), missing)

    def encode_column(self, column: Column) -> Piece:
        return self._piece(*seconds_column(self.feature.name, column))

    def _piece(self, seconds: Ints, missing: npt.NDArray[np.bool_]) -> Piece:
        absent, tz = missing_id(self.missing), self.feature.tz
        values = (time_part(part, seconds, tz) + FIRST_VALUE for part in self.feature.parts)
        return Piece(ids=tuple(np.where(missing, absent, ids) for ids in values), missing=int(missing.sum()))
