"""The columns of a version's tensors: N numerics, C single-valued id columns, M bags, always user, context, item."""

from __future__ import annotations

from dataclasses import dataclass

# Ids of every id column: 0 is the unknown value, 1 the missing one, values begin at 2.
UNKNOWN, MISSING, FIRST_VALUE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class NumericColumn:
    """One scaled number."""

    name: str
    side: str
    wide: bool


@dataclass(frozen=True, slots=True)
class IdColumn:
    """One categorical column: ids 0 .. size-1, local to the column.

    `unknown_trained` says that rare values shared id 0 in the training part, `missing_trained` that some were missing.
    """

    name: str
    feature: str
    side: str
    size: int
    dim: int
    wide: bool
    unknown_trained: bool
    missing_trained: bool


@dataclass(frozen=True, slots=True)
class CrossSpec:
    """A cross over members `(is_bag, index)` of the id columns and bags; `buckets` are the table's rows.

    Where the product of the sizes is at most `buckets` the cross is exact: mixed radix, no hashing.
    """

    name: str
    members: tuple[tuple[bool, int], ...]
    sizes: tuple[int, ...]
    buckets: int


@dataclass(frozen=True, slots=True)
class Layout:
    """All columns of a version, in the order of its tensors."""

    numerics: tuple[NumericColumn, ...]
    ids: tuple[IdColumn, ...]
    bags: tuple[IdColumn, ...]
    crosses: tuple[CrossSpec, ...]

    def wide_terms(self) -> list[str]:
        """Names of the wide part's T contributions: numerics, id columns, bags, crosses."""
        numerics = [column.name for column in self.numerics if column.wide]
        ids = [column.name for column in (*self.ids, *self.bags) if column.wide]
        return [*numerics, *ids, *(cross.name for cross in self.crosses)]


def cross_spec(name: str, of: tuple[str, ...], buckets: int, ids: list[IdColumn], bags: list[IdColumn]) -> CrossSpec:
    """Find a cross's members among the columns and the rows that its table needs."""
    places = {column.name: (False, n, column.size) for n, column in enumerate(ids)}
    places |= {column.name: (True, n, column.size) for n, column in enumerate(bags)}
    members = tuple(places[column][:2] for column in of)
    sizes = tuple(places[column][2] for column in of)
    product = 1
    for size in sizes:
        product *= size
    return CrossSpec(name, members, sizes, min(product, buckets))
