"""A module's halves and their join, by C (_halves.c): the same scores as the module's to the last few bits.

What a call of torch costs beside its arithmetic is more than the arithmetic of a user's half, and between two calls all
rows of a ranking pass through memory. Whoever asks holds the arrays of a plan; see plan.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from service.scoring.encoded import Encoded, Floats, Ints
from service.scoring.native.plan import Plan, layers_of

try:
    from service.scoring.native._halves import Join, Side, is_here
except ImportError:  # installed where there was no compiler
    Join = Side = is_here = None  # type: ignore[assignment,misc]  # the one place that knows whether it is there

AVX512, AVX2 = 16, 8


class Arrays(NamedTuple):
    """A half of K rows: first layer (K, H), wide sum (K, 1), ragged cross parts of X crosses."""

    first: Floats
    wide: Floats
    values: list[Ints]
    offsets: list[Ints]


def most_lanes() -> int:
    """Floats of the widest vector that there is a kernel for here; 0 where there is none."""
    return 0 if is_here is None else next((lanes for lanes in (AVX512, AVX2) if is_here(lanes)), 0)


class NativeHalves:
    """Of one plan; safe to call from several threads. `lanes` is at most `most_lanes()`."""

    def __init__(self, plan: Plan, lanes: int) -> None:
        self.lanes = lanes
        self._before = tuple(plan["user.sizes"][:3].tolist())
        self._outputs = int(plan["user.sizes"][4])
        self._users, self._items = _side(plan, "user", lanes), _side(plan, "item", lanes)
        scale, shift = plan["correction"].tolist()
        self._join = Join(lanes, list(layers_of(plan)), plan["wide"], plan["pairs"], scale, shift)

    def users(self, encoded: Encoded) -> Arrays:
        """Halves of rows of the user's and the context's columns."""
        return self._halves(self._users, encoded, (0, 0, 0))

    def items(self, encoded: Encoded) -> Arrays:
        """Halves of rows of the items' columns."""
        return self._halves(self._items, encoded, (0, 0, 0))

    def forward(self, encoded: Encoded) -> Floats:
        """Probabilities (B,) of rows of all sides."""
        rows = np.arange(encoded.rows)
        users, items = self._halves(self._users, encoded, (0, 0, 0)), self._halves(self._items, encoded, self._before)
        return self.rank(users, items, rows, rows)

    def rank(self, users: Arrays, items: Arrays, rows: Ints, index: Ints) -> Floats:
        """Probabilities (P,) of pairs: row `rows[p]` of the items with row `index[p]` of the users."""
        scores = np.empty(len(rows), np.float32)
        self._join.scores(users, items, np.ascontiguousarray(rows), np.ascontiguousarray(index), scores)
        return scores

    def _halves(self, side: Side, encoded: Encoded, before: Any) -> Arrays:
        first, wide = np.empty((encoded.rows, self._outputs), np.float32), np.empty((encoded.rows, 1), np.float32)
        values, offsets = [bag.values for bag in encoded.bags], [bag.offsets for bag in encoded.bags]
        parts = side.halves(_whole(encoded.numerics), _whole(encoded.ids), values, offsets, before, first, wide)
        ragged = [(np.frombuffer(values, np.int64), np.frombuffer(offsets, np.int64)) for values, offsets in parts]
        return Arrays(first, wide, [values for values, _ in ragged], [offsets for _, offsets in ragged])


def _side(plan: Plan, name: str, lanes: int) -> Side:
    def of(key: str) -> npt.NDArray[Any]:
        return plan[f"{name}.{key}"]

    numerics, ids, bags, width, outputs = of("sizes").tolist()
    tables = [of(f"tables{n}") for n in range(sum(key.startswith(f"{name}.tables") for key in plan))]
    return Side(
        lanes,
        *(numerics, ids, bags, width, outputs),
        *(of("weight"), of("bias"), [(table, table.shape[1]) for table in tables], of("vectors"), plan["wide"]),
        *(of("wide_columns"), of("numeric_columns"), of("numeric_weight"), of("crosses"), of("parts")),
    )


def _whole(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)
