"""Metrics of slices of a part: new users and items, and each value of named columns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.scoring.columns import bag_column, number_column, seconds_column, text_column
from service.scoring.encoded import Floats, Ints
from service.scoring.schema import Feature
from training import metrics
from training.config import Config
from training.data import Dataset

MOST_VALUES = 30  # of a column; the rarer ones share a slice
Mask = npt.NDArray[np.bool_]


def slices(data: Dataset, config: Config, train: Ints, rows: Ints, scores: Floats) -> list[dict[str, Any]]:
    """Metrics of each slice of `rows`, whose scores these are; `train` are the rows that the model knows."""
    masks: list[tuple[str, str, Mask]] = []
    for name, codes in (("user", data.units), ("item", None if data.keys is None else data.keys.codes)):
        if codes is not None:
            known = np.isin(codes[rows], np.unique(codes[train]))
            masks += [(name, "new", ~known), (name, "known", known)]
    features = {feature.name: feature for feature in config.schema.features}
    for name in config.report.slices:
        masks += [(name, value, mask) for value, mask in _values(data, features[name], rows)]
    return [{"column": name, "value": value} | _metrics(data, rows, scores, mask) for name, value, mask in masks]


def _metrics(data: Dataset, rows: Ints, scores: Floats, mask: Mask) -> dict[str, Any]:
    chosen = rows[mask]
    return metrics.evaluate(data.labels[chosen], scores[mask], None if data.units is None else data.units[chosen])


def _values(data: Dataset, feature: Feature, rows: Ints) -> list[tuple[str, Mask]]:
    """Each value of a feature with where it stands: numbers by their bins, else in four quarters, times by the hour."""
    column = data.table.column(feature.name).take(pa.array(rows))
    if feature.kind == "multi":
        bags = bag_column(feature.name, column)
        owner = np.repeat(np.arange(len(rows)), np.diff(bags.offsets))
        counts = np.bincount(bags.codes, minlength=len(bags.distinct))
        top = np.argsort(-counts, kind="stable")[:MOST_VALUES]
        return [(bags.distinct[code], np.isin(np.arange(len(rows)), owner[bags.codes == code])) for code in top]
    if feature.kind == "categorical":
        texts = text_column(feature.name, column)
        return _by_code(texts.codes, texts.distinct)
    if feature.kind == "datetime":
        seconds, missing = seconds_column(feature.name, column)
        hours = np.where(missing, -1, seconds // 3600 % 24)
        return _by_code(hours, [f"{hour:02d} h UTC" for hour in range(24)])
    numbers = number_column(feature.name, column)
    known = ~np.isnan(numbers)
    if not known.any():
        return [("missing", ~known)]
    edges = np.asarray(_edges(feature, numbers[known]))
    names = [f"below {edges[0]:g}", *(f"{a:g} to {b:g}" for a, b in pairwise(edges))]
    codes = np.where(known, np.searchsorted(edges, numbers, side="right"), -1)
    return _by_code(codes, [*names, f"{edges[-1]:g} and more"])


def _edges(feature: Feature, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if feature.bins and isinstance(feature.bins, tuple):
        return np.asarray(feature.bins, np.float64)
    return np.unique(np.quantile(numbers, [0.25, 0.5, 0.75]))


def _by_code(codes: Ints, names: list[str]) -> list[tuple[str, Mask]]:
    """A mask for each code, the most frequent first and what is beyond MOST_VALUES together; -1 is missing."""
    found, counts = np.unique(codes[codes >= 0], return_counts=True)
    order = found[np.argsort(-counts, kind="stable")]
    top = np.sort(order[:MOST_VALUES]) if len(order) > MOST_VALUES else found
    masks = [(names[code], codes == code) for code in top]
    if len(order) > MOST_VALUES:
        masks.append((f"{len(order) - MOST_VALUES} rarer values", np.isin(codes, order[MOST_VALUES:])))
    if (codes < 0).any():
        masks.append(("missing", codes < 0))
    return masks
