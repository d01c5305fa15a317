"""Categorical and multi features: texts through one vocabulary to ids, alone or in bags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from service.scoring.columns import Column, TextBags, Texts, bag_column, text_column
from service.scoring.encoded import Bag, Ints
from service.scoring.fields import Piece, column_of, missing_id
from service.scoring.layout import UNKNOWN, IdColumn
from service.scoring.schema import Feature
from service.scoring.values import FaultList, categories, category_text
from service.scoring.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class CategoricalField:
    """One category a row."""

    feature: Feature
    vocabulary: Vocabulary

    @classmethod
    def fit(cls, feature: Feature, column: Column) -> CategoricalField:
        texts = text_column(feature.name, column)
        return cls(feature, _vocabulary(feature, texts, int((texts.codes < 0).sum())))

    def id_columns(self) -> list[IdColumn]:
        return [_id_column(self.feature, self.vocabulary)]

    def encode_values(self, values: Sequence[object], faults: FaultList) -> Piece:
        read = partial(category_text, boolean=self.vocabulary.boolean)
        texts = [faults.guard(row, self.feature.name, read, value) for row, value in enumerate(values)]
        missing = np.array([text is None for text in texts], bool)
        ids = self.vocabulary.ids_of([text or "" for text in texts])
        unknown = int(((ids == UNKNOWN) & ~missing).sum())
        ids[missing] = missing_id(self.vocabulary.missing)
        return Piece(ids=(ids,), unknown=unknown, missing=int(missing.sum()))

    def encode_column(self, column: Column) -> Piece:
        texts = text_column(self.feature.name, column)
        missing = texts.codes < 0
        table = np.append(self.vocabulary.ids_of(texts.distinct), missing_id(self.vocabulary.missing))
        ids = table[texts.codes]
        return Piece(ids=(ids,), unknown=int(((ids == UNKNOWN) & ~missing).sum()), missing=int(missing.sum()))


@dataclass(frozen=True, slots=True)
class MultiField:
    """A set of categories a row: order and repeats mean nothing, an empty list is missing."""

    feature: Feature
    vocabulary: Vocabulary

    @classmethod
    def fit(cls, feature: Feature, column: Column) -> MultiField:
        bags = bag_column(feature.name, column)
        return cls(feature, _vocabulary(feature, bags, int((np.diff(bags.offsets) == 0).sum())))

    def id_columns(self) -> list[IdColumn]:
        return [_id_column(self.feature, self.vocabulary)]

    def encode_values(self, values: Sequence[object], faults: FaultList) -> Piece:
        read = partial(categories, boolean=self.vocabulary.boolean)
        lists = [faults.guard(row, self.feature.name, read, value) for row, value in enumerate(values)]
        ids = self.vocabulary.ids_of([text for texts in lists for text in texts])
        return self._piece(ids, np.array([len(texts) for texts in lists], np.int64))

    def encode_column(self, column: Column) -> Piece:
        texts = bag_column(self.feature.name, column)
        return self._piece(self.vocabulary.ids_of(texts.distinct)[texts.codes], np.diff(texts.offsets))

    def _piece(self, ids: Ints, lengths: Ints) -> Piece:
        """Bags of consecutive ids, `lengths` (B,) in each row."""
        empty = np.flatnonzero(lengths == 0)
        rows = np.concatenate([np.repeat(np.arange(len(lengths)), lengths), empty])
        absent = np.full(len(empty), missing_id(self.vocabulary.missing), np.int64)
        unknown = int((ids == UNKNOWN).sum())
        bag = _sorted_bag(rows, np.concatenate([ids, absent]), len(lengths))
        return Piece(bag=bag, unknown=unknown, missing=len(empty))


def _vocabulary(feature: Feature, texts: Texts | TextBags, missing: int) -> Vocabulary:
    counts = np.bincount(texts.codes[texts.codes >= 0], minlength=len(texts.distinct))
    occurring = [(text, count) for text, count in zip(texts.distinct, counts, strict=True) if count]
    return Vocabulary.fit(
        [text for text, _ in occurring],
        np.array([count for _, count in occurring], np.int64),
        min_count=feature.min_count,
        buckets=feature.buckets,
        boolean=texts.boolean,
        missing=missing,
    )


def _id_column(feature: Feature, vocabulary: Vocabulary) -> IdColumn:
    return column_of(feature, feature.name, vocabulary.size, vocabulary.rare, vocabulary.missing)


def _sorted_bag(rows: Ints, ids: Ints, count: int) -> Bag:
    """Bags of (row, id) pairs, sorted and distinct inside each row."""
    order = np.lexsort((ids, rows))
    rows, ids = rows[order], ids[order]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (rows[1:] != rows[:-1]) | (ids[1:] != ids[:-1])
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(rows[fresh], minlength=count), out=offsets[1:])
    return Bag(ids[fresh], offsets)
