from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
Half = tuple[Array, Array, list[Array], list[Array]]

class Side:
    def __init__(
        self,
        lanes: int,
        numerics: int,
        ids: int,
        bags: int,
        width: int,
        outputs: int,
        weight: Array,
        bias: Array,
        tables: list[tuple[Array, int]],
        vectors: Array,
        wide_weight: Array,
        wide_columns: Array,
        numeric_columns: Array,
        numeric_weight: Array,
        crosses: Array,
        parts: Array,
        /,
    ) -> None: ...
    def halves(
        self,
        numerics: Array,
        ids: Array,
        bag_values: list[Array],
        bag_offsets: list[Array],
        before: tuple[int, int, int],
        first: Array,
        wide: Array,
        /,
    ) -> list[tuple[bytearray, bytearray]]: ...

class Join:
    def __init__(
        self,
        lanes: int,
        layers: list[tuple[int, int, Array, Array]],
        wide_weight: Array,
        crosses: Array,
        scale: float,
        shift: float,
        /,
    ) -> None: ...
    def scores(self, users: Half, items: Half, rows: Array, index: Array, scores: Array, /) -> None: ...

def is_here(lanes: int, /) -> bool: ...
