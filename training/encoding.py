"""Fit the encoder and encode the parts, once for a set of files, features and cuts; what memory holds does not grow.

The encoder is fitted column by column: the training part of one column is in memory, never the whole of it. Encoded
rows go into the cache block by block, each part into files of its own, in the order of the rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from service.scoring.encoded import Encoded, Floats, Ints
from service.scoring.features import FeatureEncoder
from service.scoring.fields import Field
from service.scoring.numeric import Scaler
from service.scoring.schema import SIDES, Feature, FeatureSchema
from service.scoring.values import DataError
from training.batches import Batch
from training.bins import numbers_of, with_edges
from training.cache import BLOCK_ROWS, EncodedFiles, key_of, map_rows, obtain
from training.config import Config
from training.data import Dataset
from training.showing import Bar
from training.shuffle import BUFFER_BYTES, Rows
from training.split import Cuts


def fit_encoder(schema: FeatureSchema, data: Dataset, train: Ints) -> FeatureEncoder:
    """What FeatureEncoder.fit gives for the rows `train` (ascending); raises DataFault."""
    features: dict[str, Feature] = {}  # with the edges of their bins
    fields: list[Field] = []
    scalers: dict[str, Scaler] = {}
    for feature in sorted(schema.features, key=lambda feature: SIDES.index(feature.side)):
        column = data.column(feature.name, train)
        try:
            one = with_edges(FeatureSchema((feature,)), partial(numbers_of, column), data.labels[train])
            alone = FeatureEncoder.fit(one, column)
        except DataError as error:
            raise data.fault(error, train) from None
        features[feature.name] = one.features[0]
        fields += alone.fields
        scalers |= alone.scalers
    schema = dataclasses.replace(schema, features=tuple(features[feature.name] for feature in schema.features))
    return FeatureEncoder(schema, tuple(fields), scalers)


def encode_parts(
    data: Dataset, encoder: FeatureEncoder, config: Config, cuts: Cuts, parts: Mapping[str, Ints], cache: Path
) -> dict[str, Encoded]:
    """Each part's rows, mapped from `cache`, written there where they are not yet; raises DataFault."""
    said = config.to_dict()
    about = {name: said[name] for name in ("data", "features", "crosses")}
    kept = [config.train.negatives, config.train.seed if config.train.negatives < 1 else 0]
    key = key_of(files=dict(data.files), cuts=cuts.to_dict(), kept=kept, encoder=True, **about)
    folder, _ = obtain(cache, key, lambda aside: _write(data, encoder, parts, aside))
    layout = encoder.layout
    sizes = (len(layout.numerics), len(layout.ids), len(layout.bags))
    return {name: map_rows(folder / name, len(rows), *sizes) for name, rows in parts.items()}


def _write(data: Dataset, encoder: FeatureEncoder, parts: Mapping[str, Ints], folder: Path) -> dict[str, Any]:
    total, bags = data.table.num_rows, len(encoder.layout.bags)
    with ExitStack() as stack, Bar("encoding", total) as bar:
        files = {name: stack.enter_context(closing(EncodedFiles(folder / name, bags))) for name in parts}
        for start in range(0, total, BLOCK_ROWS):
            end = min(start + BLOCK_ROWS, total)
            block = data.encode_block(encoder, start, end)
            for name, rows in parts.items():
                inside = rows[slice(*np.searchsorted(rows, [start, end]))] - start
                files[name].append(block if len(inside) == block.rows else block.take(inside))
            bar.add(end - start)
    return {"rows": {name: len(rows) for name, rows in parts.items()}}


def rows_on(device: str, encoded: Encoded, labels: Floats) -> Rows:
    """A part's rows for training: on the device as a whole where that is small, else as they are mapped."""
    mapped = MappedRows(encoded, labels, device)
    return mapped.read(0, mapped.rows) if mapped.bytes <= BUFFER_BYTES else mapped


@dataclass(frozen=True, slots=True)
class MappedRows:
    """Rows of the cache as batches: what is read is copied to the device when it is asked for."""

    encoded: Encoded
    labels: Floats
    device: str

    @property
    def rows(self) -> int:
        return len(self.labels)

    @property
    def bytes(self) -> int:
        bags = sum(bag.values.nbytes + bag.offsets.nbytes for bag in self.encoded.bags)
        return self.encoded.numerics.nbytes + self.encoded.ids.nbytes + self.labels.nbytes + bags

    def read(self, start: int, end: int) -> Batch:
        return Batch.of(self.encoded.slice(start, end), self.labels[start:end], self.device)

    def slices(self, size: int) -> Iterator[Batch]:
        """Batches of `size` rows."""
        for start in range(0, self.rows, size):
            yield from self.read(start, min(start + size, self.rows)).slices(size)
