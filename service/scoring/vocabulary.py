"""Category texts to ids: a vocabulary fitted on the training part, or a fixed hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from service.scoring.encoded import Ints
from service.scoring.layout import FIRST_VALUE, UNKNOWN


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The texts of one column, id 2 onward; with `buckets` > 0 no list but a hash into as many ids.

    `rare` counts training values that share the unknown id, `missing` those that were missing there.
    """

    texts: tuple[str, ...] = ()
    buckets: int = 0
    boolean: bool = False
    rare: int = 0
    missing: int = 0
    index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index = {text: n for n, text in enumerate(self.texts, FIRST_VALUE)}
        if len(index) != len(self.texts):
            raise ValueError("a text stands in the vocabulary twice")
        object.__setattr__(self, "index", index)

    @classmethod
    def fit(
        cls, distinct: Sequence[str], counts: Ints, *, min_count: int, buckets: int, boolean: bool, missing: int
    ) -> Vocabulary:
        """Most frequent first, ties by text, so that neither row order nor file size can change an id."""
        if buckets:
            return cls(buckets=buckets, boolean=boolean, missing=missing)
        kept = [(-int(count), text) for text, count in zip(distinct, counts, strict=True) if count >= min_count]
        rare = int(counts.sum()) + sum(negative for negative, _ in kept)
        return cls(tuple(text for _, text in sorted(kept)), 0, boolean, rare, missing)

    @property
    def size(self) -> int:
        return FIRST_VALUE + (self.buckets or len(self.texts))

    def id_of(self, text: str) -> int:
        if self.buckets:
            return FIRST_VALUE + text_hash(text) % self.buckets
        return self.index.get(text, UNKNOWN)

    def ids_of(self, texts: Iterable[str]) -> Ints:
        return np.fromiter((self.id_of(text) for text in texts), np.int64)


def text_hash(text: str) -> int:
    """64 bits of BLAKE2b over the UTF-8 text: the same on every platform, for ever."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
