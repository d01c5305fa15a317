"""What a report judges by: fixed before an experiment starts, or the promise of its intervals is void."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """`alpha` is the chance that an experiment without a difference is ever judged to have one, over all its looks.

    `planned` (N*) is the expected size at the decision, in exposures of an equally split test: intervals are tightest
    there and valid everywhere. `margin` is the relative lift that does not matter: an interval inside it on both sides
    is "no difference". `planned_joined` is the expected size of the sample, in items, that online AUC and calibration
    come from. Nothing is judged before `least_time` of `planned` and `least_clicks` an arm.
    ValueError where a value makes no sense.
    """

    alpha: float = 0.05
    planned: float = 100_000.0
    planned_joined: float = 20_000.0
    margin: float = 0.02
    least_time: float = 0.02
    least_clicks: int = 100
    srm_warning: float = 0.01
    srm_mismatch: float = 0.001

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha is {self.alpha}, not between 0 and 1")
        for size in (self.planned, self.planned_joined):
            if not 0 < size < float("inf"):
                raise ValueError(f"a planned size is {size}, not a positive number")
        if not 0 <= self.margin < 1:
            raise ValueError(f"the margin is {self.margin}, not a part of the rate")
        if not 0 < self.srm_mismatch <= self.srm_warning < 1:
            raise ValueError("the mismatch bound must be below the warning bound, both between 0 and 1")
