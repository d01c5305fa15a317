"""Category texts to ids: a vocabulary fitted on the training part, or a fixed hash."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.scoring.encoded import Ints
from service.scoring.index import KeyColumn, build_column
from service.scoring.layout import FIRST_VALUE, UNKNOWN


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The `count` texts of one column, id 2 onward, found through `column`; with `buckets` > 0 a hash into as many ids.

    `rare` counts training values that share the unknown id, `missing` those that were missing there. `texts` is kept
    for publishing alone.
    """

    count: int = 0
    column: KeyColumn | None = None
    buckets: int = 0
    boolean: bool = False
    rare: int = 0
    missing: int = 0
    texts: tuple[str, ...] = ()

    @classmethod
    def fit(
        cls, distinct: Sequence[str], counts: Ints, *, min_count: int, buckets: int, boolean: bool, missing: int
    ) -> Vocabulary:
        """Most frequent first, ties by text, so that neither row order nor file size can change an id."""
        if buckets:
            return cls(buckets=buckets, boolean=boolean, missing=missing)
        kept = [(-int(count), text) for text, count in zip(distinct, counts, strict=True) if count >= min_count]
        rare = int(counts.sum()) + sum(negative for negative, _ in kept)
        texts = tuple(text for _, text in sorted(kept))
        column = build_column(texts, ids_of_order(len(texts)))
        return cls(len(texts), column, 0, boolean, rare, missing, texts)

    @property
    def size(self) -> int:
        return FIRST_VALUE + (self.buckets or self.count)

    def ids_of(self, texts: Sequence[str]) -> Ints:
        """Ids (n,) of texts; unknown ones share an id."""
        if self.buckets:
            return np.fromiter((FIRST_VALUE + text_hash(text) % self.buckets for text in texts), np.int64, len(texts))
        if self.column is None or not len(texts):
            return np.full(len(texts), UNKNOWN, np.int64)
        return np.maximum(self.column.find(texts), UNKNOWN).astype(np.int64)


def ids_of_order(count: int) -> Ints:
    """The ids of a vocabulary's texts in its order."""
    return np.arange(FIRST_VALUE, FIRST_VALUE + count, dtype=np.int64)


def text_hash(text: str) -> int:
    """64 bits of BLAKE2b over the UTF-8 text: the same on every platform, for ever."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
