"""Edges of numeric bins that a config leaves to the data, found on the training part alone.

    quantile:N   equal shares of the training rows
    target:N     the leaves of a decision tree of this one feature on the label (Gorishniy et al. 2022, section 3.2)

A version's schema holds the edges themselves, so that serving knows nothing of rules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.scoring.columns import Doubles, number_column
from service.scoring.features import table_column
from service.scoring.schema import Feature, FeatureSchema

LEAST_ROWS = 32  # of a target bin: below it a bin's rate is the noise of its own few labels


def with_edges(
    schema: FeatureSchema, numbers: Callable[[str], Doubles], labels: npt.NDArray[np.float32]
) -> FeatureSchema:
    """The schema with edges (rising, at least one) for every rule.

    `numbers` gives a column's values in the training rows, or in a sample of them, and `labels` (rows,) are theirs.
    """
    features = (
        _resolved(feature, numbers(feature.name), labels) if feature.rule else feature for feature in schema.features
    )
    return dataclasses.replace(schema, features=tuple(features))


def numbers_of(table: pa.Table, name: str) -> Doubles:
    """A numeric column of a table, all missing where it has none; raises DataError."""
    return number_column(name, table_column(table, name))


def _resolved(feature: Feature, values: Doubles, labels: npt.NDArray[np.float32]) -> Feature:
    name, _, count = feature.rule.partition(":")
    known = ~np.isnan(values)
    values, labels = values[known], labels[known]
    if not len(values):
        return dataclasses.replace(feature, bins=(0.0,), rule="")
    most = int(count)
    edges = quantile_edges(values, most) if name == "quantile" else target_edges(values, labels, most)
    return dataclasses.replace(feature, bins=edges, rule="")


def quantile_edges(values: Doubles, count: int) -> tuple[float, ...]:
    """At most count - 1 edges that part the values into shares as equal as ties allow."""
    cuts = np.unique(np.quantile(values, np.arange(1, count) / count, method="higher"))
    inner = cuts[cuts > values.min()]  # the least value opens the first bin itself
    return tuple(inner.tolist()) or (float(values.min()),)


def target_edges(values: Doubles, labels: npt.NDArray[np.float32], count: int) -> tuple[float, ...]:
    """At most count - 1 edges where the rate of positives changes most."""
    from sklearn.tree import DecisionTreeClassifier  # half a second to import

    least = min(LEAST_ROWS, max(1, len(values) // count))
    tree = DecisionTreeClassifier(max_leaf_nodes=count, min_samples_leaf=least, random_state=0)
    fitted = tree.fit(values.astype(np.float32)[:, None], labels).tree_
    found = np.unique(fitted.threshold[fitted.children_left >= 0].astype(np.float64))
    # The tree goes left at value <= threshold, a bin ends before its edge.
    edges = np.unique(np.nextafter(found, np.inf))
    return tuple(edges.tolist()) or (float(values.min()),)
