"""The catalog: item features by item id, encoded once at load, and the items' halves made ready."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from service.scoring.columns import text_column
from service.scoring.encoded import Encoded
from service.scoring.features import FeatureEncoder
from service.scoring.files import ArtifactError
from service.scoring.half import Half
from service.scoring.values import DataError


@dataclass(frozen=True, slots=True)
class Catalog:
    """I items: `index` finds an item's row in `encoded`, which holds the item side's columns alone.

    `half` is the items' half of the model, made once; None where the engine makes none, or too large to keep.
    """

    index: dict[str, int]
    encoded: Encoded
    half: Half | None = None

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
        index: dict[str, int] = {}
        for row, code in enumerate(texts.codes.tolist()):
            if index.setdefault(texts.distinct[code], row) != row:
                raise DataError(key, f"item '{texts.distinct[code][:80]}' stands here twice", row)
        return cls(index, encoder.encode_table(table, sides=("item",)))

    @classmethod
    def load(cls, path: Path, encoder: FeatureEncoder) -> Catalog:
        """Read and encode a catalog file; raises ArtifactError naming it."""
        try:
            return cls.encode(pq.read_table(path, partitioning=None), encoder)
        except (pa.ArrowException, OSError, DataError) as error:
            raise ArtifactError(f"{path.name}: {str(error).splitlines()[0]}") from None
