"""Rows of a request, and ids of candidates, straight from their JSON where a compiler was at hand.

No Python object is made for a value then. `_reader.c` reads the ordinary alone, and says so where it did not: `rows.py`
does the same value by value, and is what a test holds it equal to. Without the compiled module all goes that way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt

from service.scoring.encoded import Ints
from service.scoring.index import KeyIndex, Keys

try:
    from service.scoring._reader import Reader, read_keys
except ImportError:  # installed where there was no compiler
    Reader = None  # type: ignore[assignment,misc]  # the one place that knows whether it is there

NUMBER, INTEGER, TEXT, OTHER = range(4)  # as in _reader.c

T = TypeVar("T")


class ReadRows(NamedTuple):
    """B rows as they were sent, as the reader left them: no array is made before `RowReader.together`.

    `unknown` and `missing` count values by feature name. `reader` is whose they are.
    """

    reader: RowReader
    rows: int
    numerics: bytes
    ids: bytes
    unknown: dict[str, int]
    missing: dict[str, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """How one name's values are read; `place` is a column of the numerics, or of the ids.

    `part` is 1 where a row comes in two objects and the second has it.
    """

    name: str
    kind: int
    place: int = 0
    salt: int = 0
    missing: int = 0
    part: int = 0


class RowReader:
    """Reads the rows of one version: N numerics and C id columns, all categories by one index."""

    def __init__(self, entries: Sequence[Entry], numerics: int, ids: int, index: KeyIndex) -> None:
        plan = tuple((one.name, one.kind, one.place, one.salt, one.missing, one.part) for one in entries)
        self._numerics, self._ids = numerics, ids
        self._reader = Reader(plan, numerics, ids, index.keys, index.values, index.bits, index.reach)

    def read(self, data: Any, most: int) -> ReadRows | None:
        """The rows of a JSON list (bytes, or what lends them) of at least one and at most `most` objects.

        None where it is not for this reader.
        """
        found = self._reader.read(data, most)
        return None if found is None else ReadRows(self, *found)

    def read_parts(self, first: Any, second: Any) -> ReadRows | None:
        """One row whose names come in two JSON objects, each the names of its own part; None as above."""
        found = self._reader.read_parts(first, second)
        return None if found is None else ReadRows(self, *found)

    def together(self, read: Sequence[ReadRows]) -> tuple[npt.NDArray[np.float64], Ints]:
        """All that was read, in its order: raw numerics (B, N), NaN where missing, and ids (B, C), to be written to:
        bins are still to be filled in."""
        rows = sum(one.rows for one in read)
        numerics = bytearray().join([one.numerics for one in read])
        ids = bytearray().join([one.ids for one in read])
        return (
            np.frombuffer(numerics, np.float64).reshape(rows, self._numerics),
            np.frombuffer(ids, np.int64).reshape(rows, self._ids),
        )


class ReadKeys(NamedTuple):
    """The unsalted keys (n,) of n candidates, none of them missing; `integers` as the column has it (index.py)."""

    keys: Keys
    integers: bool


def read_ids(data: Any, most: int, *, integers: bool) -> ReadKeys | None:
    """The ids of a JSON list of at least one and at most `most`; None where it takes more than that to read it."""
    if Reader is None:
        return None
    found = read_keys(data, integers, most)
    return None if found is None else ReadKeys(np.frombuffer(found, np.uint64), integers)


def is_compiled() -> bool:
    """Whether there is a compiled reader at all."""
    return Reader is not None


class LazyObject(Mapping[str, object]):
    """A JSON object that is decoded only where somebody looks into it."""

    def __init__(self, decode: Callable[[], Mapping[str, object]]) -> None:
        self._decode = decode
        self._parts: Mapping[str, object] | None = None

    def __len__(self) -> int:
        return len(self._decoded())

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __getitem__(self, key: str) -> object:
        return self._decoded()[key]

    def _decoded(self) -> Mapping[str, object]:
        if self._parts is None:
            self._parts = self._decode()
        return self._parts


class Lazy(Sequence[T]):
    """A list of `count` parts that is decoded only where somebody looks at it."""

    def __init__(self, count: int, decode: Callable[[], Any]) -> None:
        self._count, self._decode = count, decode
        self._parts: list[T] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return iter(self._decoded())

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._decoded()[index]

    def _decoded(self) -> list[T]:
        if self._parts is None:
            self._parts = self._decode()
        return self._parts
