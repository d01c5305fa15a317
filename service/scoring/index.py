"""Texts to numbers without a dictionary: arrays that every process of a host can map, looked up a block at a time.

A value becomes a 64-bit key, the key a place in a table. An integer's key is a bijection of it. A text's is Python's
own keyed hash of it (SipHash): the same in all processes forked from one, so that they can share a table, and unknown
to clients. An unknown text meets a known one's key by chance alone, N values in 2^64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq

import numpy as np
import numpy.typing as npt

from service.scoring.encoded import Ints

_find: Callable[..., bytes] | None
try:
    from service.scoring import _reader

    _find = _reader.find
except ImportError:  # installed where there was no compiler
    _find = None

Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]

# What `find` gives for a key that is not there.
ABSENT = -1
# What it gives for the empty text, which every column of texts has: a missing value.
EMPTY = -2
# An integer column's stand-in for what is no 64-bit integer; no column has it as a value.
NOTHING = -(2**63)
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads consecutive integers (Knuth, TAOCP 3, 6.4)
_SPARE_BITS = 1  # at most half of the table is taken


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """Open addressing with linear probing: `keys` and `values` are (S,), at most `reach` places after a key's own."""

    keys: Keys
    values: Numbers
    bits: int
    reach: int

    @classmethod
    def build(cls, keys: Keys, values: Ints) -> KeyIndex:
        """An index of N distinct keys; raises ValueError where one stands there twice."""
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        if (keys[1:] == keys[:-1]).any():
            raise ValueError("a value stands there twice")
        bits = max(4, len(keys).bit_length() + _SPARE_BITS)
        home = (keys >> np.uint64(64 - bits)).astype(np.int64)
        # In the order of their homes each key takes the first free place from there on.
        rank = np.arange(len(keys))
        places = np.maximum.accumulate(home - rank) + rank if len(keys) else rank
        reach = int((places - home).max(initial=0))
        size = (1 << bits) + reach + 1
        # An empty place holds a key that no value has; whoever has it is told ABSENT by the place's own value.
        table, numbers = np.full(size, _unused(keys), np.uint64), np.full(size, ABSENT, np.int32)
        table[places], numbers[places] = keys, values[order]
        return cls(table, numbers, bits, reach)

    def find(self, keys: Keys, salt: int = 0) -> Numbers:
        """The values (n,) of keys (n,) once they are salted, ABSENT where there is none."""
        if _find is not None:
            wanted = np.ascontiguousarray(keys, np.uint64)
            return np.frombuffer(_find(self.keys, self.values, self.bits, self.reach, wanted, salt), np.int32)
        return self.find_by_arrays(keys ^ np.uint64(salt))

    def find_by_arrays(self, keys: Keys) -> Numbers:
        """The same of salted keys without the compiled module."""
        places = (keys >> np.uint64(64 - self.bits)).astype(np.int64)
        astray = np.flatnonzero(self.keys[places] != keys)
        for _ in range(self.reach):
            if not astray.size:
                break
            places[astray] += 1
            astray = astray[self.keys[places[astray]] != keys[astray]]
        found = self.values[places]
        found[astray] = ABSENT
        return found


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One column's part of an index. `integers`: all of its values are integers, and go by number and not by text."""

    index: KeyIndex
    salt: int
    integers: bool

    def find(self, texts: Sequence[str]) -> Numbers:
        """The values (n,) of texts, ABSENT where the column has none of that text."""
        if self.integers:
            return self.index.find(integer_keys(np.array([whole(text) for text in texts], np.int64), self.salt))
        return self.index.find(text_keys(texts, self.salt))

    def find_integers(self, integers: Ints) -> Numbers:
        """The same for integers, of a column that goes by number."""
        return self.index.find(integer_keys(integers, self.salt))


def build_column(texts: Sequence[str], values: Ints) -> KeyColumn:
    """An index of one column alone; raises ValueError where a text stands there twice."""
    return shared_columns({0: texts}, lambda _: values)[0]


def shared_columns(texts: Mapping[int, Sequence[str]], values: Callable[[int], Ints]) -> dict[int, KeyColumn]:
    """One index for several columns, by their numbers; `values(n)` are those of a column's n texts, in their order."""
    keys: list[Keys] = [np.zeros(0, np.uint64)]
    numbers: list[Ints] = [np.zeros(0, np.int64)]
    integers: dict[int, bool] = {}
    for column, words in texts.items():
        salt = salt_of(column)
        found, integers[column] = column_keys(words, salt)
        keys.append(found)
        numbers.append(values(len(words)))
        if not integers[column]:
            keys.append(text_keys([""], salt))
            numbers.append(np.array([EMPTY]))
    index = KeyIndex.build(np.concatenate(keys), np.concatenate(numbers))
    return {column: KeyColumn(index, salt_of(column), integers[column]) for column in texts}


def column_keys(texts: Sequence[str], salt: int) -> tuple[Keys, bool]:
    """The keys (n,) of a column's texts, and whether they go by number."""
    integers = all_integers(texts)
    return (text_keys(texts, salt), False) if integers is None else (integer_keys(integers, salt), True)


def salt_of(column: int) -> int:
    """What keeps the columns of one index apart."""
    return (column + 1) * 0xD1B54A32D192ED03 & 0xFFFFFFFFFFFFFFFF


def text_keys(texts: Iterable[str], salt: int = 0) -> Keys:
    return np.fromiter(map(hash, texts), np.int64).view(np.uint64) ^ np.uint64(salt)


def integer_keys(integers: Ints, salt: int = 0) -> Keys:
    return (integers.view(np.uint64) * _ODD) ^ np.uint64(salt)


def whole(text: str) -> int:
    """The integer that a text writes in its one canonical form, else NOTHING."""
    try:
        number = int(text)
    except ValueError:
        return NOTHING
    return number if NOTHING < number < 2**63 and str(number) == text else NOTHING


def all_integers(texts: Sequence[str]) -> Ints | None:
    """The integers (n,) that the texts write, None where one of them writes none, or there are no texts."""
    if not texts:
        return None
    try:
        numbers = list(map(int, texts))
    except ValueError:
        return None
    if min(numbers) <= NOTHING or max(numbers) >= 2**63 or not all(map(eq, map(str, numbers), texts)):
        return None  # as `whole` has it, at a third of the cost: a load reads millions
    return np.array(numbers, np.int64)


def _unused(keys: Keys) -> np.uint64:
    """The smallest key that is not among these, which are sorted."""
    gap = np.flatnonzero(keys != np.arange(len(keys), dtype=np.uint64))
    return np.uint64(gap[0] if gap.size else len(keys))
