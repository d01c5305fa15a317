"""One line of what must be shown: a figure, its bounds, and what stands beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

Facts = dict[str, float | str | None]


@dataclass(frozen=True, slots=True)
class Check:
    """`must` and `aim` are the least that `value` may be, or the most where `at_most`; None where there is no bound."""

    row: str
    what: str
    value: float
    must: float | None = None
    aim: float | None = None
    at_most: bool = False
    facts: Facts = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """ "aim", "must" or "short" by the bound that is met; "-" where none is set."""
        if math.isnan(self.value):
            return "short"
        if self._meets(self.aim):
            return "aim"
        if self._meets(self.must):
            return "must"
        return "-" if self.must is None and self.aim is None else "short" if self.must is not None else "below the aim"

    def _meets(self, bound: float | None) -> bool:
        return bound is not None and (self.value <= bound if self.at_most else self.value >= bound)
