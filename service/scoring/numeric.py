"""A numeric feature: fitted in float64, applied as the plain arithmetic of its pickled scikit-learn scaler."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from service.scoring.columns import Column, Doubles, number_column
from service.scoring.encoded import Floats, Ints
from service.scoring.fields import Piece, column_of, missing_id
from service.scoring.layout import FIRST_VALUE, IdColumn
from service.scoring.schema import Feature
from service.scoring.values import DataError, FaultList, ValueFault, number


class Scaler(Protocol):
    """A fitted scaler of scikit-learn, or the plain holder of its state."""

    __dict__: dict[str, Any]


@dataclass(frozen=True, slots=True)
class NumericField:
    """Raw float64 values, NaN where missing, to scaled float32 values and bin ids.

    `low` and `high` bound the training values, `mean` replaces missing ones, all raw. The scaled value is
    `raw * factor + shift` for min-max (then clipped to [0, 1]) and `(raw - shift) / factor` for standard.
    """

    feature: Feature
    low: float
    high: float
    mean: float
    missing: int
    factor: float = 1.0
    shift: float = 0.0

    @classmethod
    def fit(cls, feature: Feature, values: Doubles) -> tuple[NumericField, Scaler | None]:
        """Fit on the training part's raw values; the scaler is what the version pickles."""
        if feature.rule:
            raise ValueError(f"the bins of '{feature.name}' are still a rule, \"{feature.rule}\"; find the edges first")
        present = values[~np.isnan(values)]
        missing = len(values) - len(present)
        if not len(present):
            present = np.zeros(1)
        low, high = float(present.min()), float(present.max())
        if feature.scaler == "log1p-minmax" and low <= -1:
            raise DataError(feature.name, f"log1p needs values above -1, the least is {low:g}")
        scaler = _fitted(feature.scaler, present)
        # The sum of huge values may overflow where their mean does not.
        mean = math.fsum(present / len(present))
        bare = cls(feature, low, high, mean, missing)
        try:
            return bare.with_scaler(scaler), scaler
        except ValueError:
            raise DataError(feature.name, f"its range, {low:g} to {high:g}, is too wide to be scaled") from None

    def with_scaler(self, scaler: Scaler | None) -> NumericField:
        """The same encoder with the arithmetic read out of `scaler`; raises ValueError where its state does not fit."""
        kind = self.feature.scaler
        if kind == "none":
            return self
        names = ("scale_", "mean_") if kind == "standard" else ("scale_", "min_")
        factor, shift = (_single(scaler, name) for name in names)
        if not (math.isfinite(factor) and math.isfinite(shift)) or factor == 0:
            raise ValueError("its arrays are not finite")
        return dataclasses.replace(self, factor=factor, shift=shift)

    def scale(self, raw: Doubles) -> Floats:
        """Scaled float32 values (B,); not finite where a raw value is too large for float32."""
        values = np.where(np.isnan(raw), self.mean, raw)
        with np.errstate(over="ignore"):
            kind = self.feature.scaler
            return scaled(kind, values, self.low, self.high, self.factor, self.shift).astype(np.float32)

    def bin_ids(self, raw: Doubles) -> Ints:
        """The bin of each value: bin k holds edges[k-1] <= value < edges[k]."""
        bins = np.searchsorted(np.asarray(self.feature.bins), raw, side="right") + FIRST_VALUE
        return np.where(np.isnan(raw), missing_id(self.missing), bins).astype(np.int64)

    def id_columns(self) -> list[IdColumn]:
        size = FIRST_VALUE + len(self.feature.bins) + 1
        return [column_of(self.feature, name, size, 0, self.missing) for name in self.feature.id_columns()]

    def encode_values(self, values: Sequence[object], faults: FaultList) -> Piece:
        name = self.feature.name
        raw = np.array([faults.guard(row, name, number, value) for row, value in enumerate(values)], np.float64)
        piece = self._piece(raw)
        assert piece.numeric is not None  # every numeric feature has its scaled value
        for row in np.flatnonzero(~np.isfinite(piece.numeric)):
            fault = ValueFault("the number is too large: not finite in float32 after scaling", "finite_number")
            faults.add(int(row), self.feature.name, fault)
        return piece

    def encode_column(self, column: Column) -> Piece:
        raw = number_column(self.feature.name, column)
        piece = self._piece(raw)
        if piece.numeric is not None and not np.isfinite(piece.numeric).all():
            row = int((~np.isfinite(piece.numeric)).argmax())
            raise DataError(self.feature.name, "the number is too large: not finite in float32 after scaling", row)
        return piece

    def _piece(self, raw: Doubles) -> Piece:
        ids = (self.bin_ids(raw),) if self.feature.bins else ()
        return Piece(numeric=self.scale(raw), ids=ids, missing=int(np.isnan(raw).sum()))

    def state(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "mean": self.mean, "missing": self.missing}

    @classmethod
    def restore(cls, feature: Feature, state: dict[str, Any], scaler: Scaler | None) -> NumericField:
        """The encoder of a published version; raises ValueError where its state does not fit."""
        low, high, mean = (float(state[key]) for key in ("low", "high", "mean"))
        bare = cls(feature, low, high, mean, int(state["missing"]))
        if feature.rule:
            raise ValueError(f"the bins of '{feature.name}' are a rule and no edges")
        if not all(math.isfinite(value) for value in (bare.low, bare.high, bare.mean)):
            raise ValueError(f"the range of '{feature.name}' is not finite")
        return bare.with_scaler(scaler)


Number = float | Doubles


def scaled(kind: str, values: Doubles, low: Number, high: Number, factor: Number, shift: Number) -> Doubles:
    """Values (B,) of one feature, or (B, N) of N features with a number of each for every column."""
    if kind == "none":
        return values
    if kind == "standard":
        return (values - shift) / factor
    if kind == "log1p-minmax":
        values = np.log1p(np.clip(values, low, high))
    return np.clip(values * factor + shift, 0.0, 1.0)


def _fitted(kind: str, present: Doubles) -> Scaler | None:
    if kind == "none":
        return None
    # Imported here: scikit-learn is needed to fit, never to serve.
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    if kind == "standard":
        return StandardScaler().fit(present[:, None])  # type: ignore[no-any-return]  # scikit-learn has no types
    values = np.log1p(present) if kind == "log1p-minmax" else present
    return MinMaxScaler(clip=True).fit(values[:, None])  # type: ignore[no-any-return]  # scikit-learn has no types


def _single(scaler: Scaler | None, name: str) -> float:
    values = getattr(scaler, "__dict__", {}).get(name)
    if values is None:
        raise ValueError(f"it was never fitted (no {name})")
    if np.shape(values) != (1,):
        raise ValueError(f"{name} has shape {np.shape(values)}, not (1,)")
    return float(np.asarray(values, np.float64)[0])
