from typing import Any

import numpy.typing as npt

class Reader:
    def __init__(
        self,
        plan: tuple[tuple[str, int, int, int, int, int], ...],
        numerics: int,
        ids: int,
        keys: npt.NDArray[Any],
        values: npt.NDArray[Any],
        bits: int,
        reach: int,
        /,
    ) -> None: ...
    def read(self, data: Any, most: int, /) -> tuple[int, bytes, bytes, dict[str, int], dict[str, int]] | None: ...
    def read_parts(
        self, first: Any, second: Any, /
    ) -> tuple[int, bytes, bytes, dict[str, int], dict[str, int]] | None: ...

def find(
    keys: npt.NDArray[Any], values: npt.NDArray[Any], bits: int, reach: int, wanted: Any, salt: int, /
) -> bytes: ...
def read_keys(data: Any, integers: bool, most: int, /) -> bytes | None: ...
