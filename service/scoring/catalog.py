"""The catalog: item features by item id, encoded once at load, and the items' halves made ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from service.scoring.columns import text_column
from service.scoring.encoded import Encoded
from service.scoring.engine import Engine
from service.scoring.features import FeatureEncoder
from service.scoring.files import ArtifactError
from service.scoring.half import Half
from service.scoring.half_files import map_half, too_large
from service.scoring.index import KeyColumn, build_column
from service.scoring.values import DataError


@dataclass(frozen=True, slots=True)
class Catalog:
    """I items: `items` finds an item's row in `encoded`, which holds the item side's columns alone.

    `half` is the items' half of the model, made once; None where the engine makes none, or too large to keep.
    """

    items: KeyColumn
    encoded: Encoded
    half: Half | None = None
    revision: int = 0

    @classmethod
    def encode(cls, table: pa.Table, encoder: FeatureEncoder) -> Catalog:
        """Encode an item table; raises DataError for a bad value, a missing or repeated item key."""
        key = encoder.schema.item
        assert key is not None  # the caller has an item key
        if key not in table.column_names:
            raise DataError(key, "the item key's column is missing")
        texts = text_column(key, table.column(key))
        if (texts.codes < 0).any():
            raise DataError(key, "an item key is missing", int((texts.codes < 0).argmax()))
        ids = [texts.distinct[code] for code in texts.codes.tolist()]
        try:
            items = build_column(ids, np.arange(len(ids)))
        except ValueError:
            row = _repeated(ids)
            raise DataError(key, f"item '{ids[row][:80]}' stands here twice", row) from None
        return cls(items, encoder.encode_table(table, sides=("item",)))

    @classmethod
    def load(cls, path: Path, encoder: FeatureEncoder) -> Catalog:
        """Read and encode a catalog file; raises ArtifactError naming it."""
        try:
            return cls.encode(pq.read_table(path, partitioning=None), encoder)
        except (pa.ArrowException, OSError, DataError) as error:
            raise ArtifactError(f"{path.name}: {str(error).splitlines()[0]}") from None


def ready_half(engine: Engine, encoded: Encoded, folder: Path | None = None) -> Half | None:
    """The items' half, in files of `folder` where one is given; None where it would be too large to keep."""
    if encoded.rows and too_large(encoded.rows, engine.items(encoded.slice(0, 1)).bytes_per_row):
        return None
    if folder is None:
        return engine.items(encoded)
    engine.items_to(encoded, folder)
    return map_half(folder, str(engine.device))


def _repeated(ids: Sequence[str]) -> int:
    """The first row whose item stands before it already."""
    seen: set[str] = set()
    for row, item in enumerate(ids):
        if item in seen:
            return row
        seen.add(item)
    raise ValueError("two items share a hash: start again")
