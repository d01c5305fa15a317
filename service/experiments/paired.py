"""Two versions on the same items of the same answers, joined with clicks: who ranks and predicts better. Pure.

Paired, so that what both find hard cancels out; clustered by unit. Shape letter: P items.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from service.experiments.evidence import Joined
from service.experiments.quality import auc_gain, calibration, clustered, ranking
from service.experiments.statistics import Estimate

Floats = npt.NDArray[np.float64]

NORMAL = 1.959964
LEAST = 1e-7  # scores are clipped so far from 0 and 1 for the log loss, as where a version was evaluated


class Measured(NamedTuple):
    """A value and its standard error; NaN where there is nothing to measure."""

    value: float
    error: float

    def bounds(self, errors: float) -> tuple[float, float]:
        """So many standard errors about the value."""
        return self.value - errors * self.error, self.value + errors * self.error


class Paired(NamedTuple):
    """The version that answered, and the one that shadowed it; differences are the latter less the former."""

    version: str
    shadow: str
    items: int
    clicks: int
    units: int
    auc: float
    shadow_auc: float
    auc_gain: Measured
    logloss_gain: Measured
    calibration: Measured
    shadow_calibration: Measured


def paired(joined: Joined) -> Paired | None:
    """The comparison on the items that have both scores; None where there are none."""
    both = np.isfinite(joined.shadow) if len(joined.shadow) else np.zeros(len(joined.scores), np.bool_)
    if joined.shadow_version is None or not both.any():
        return None
    first, second, clicked, units = joined.scores[both], joined.shadow[both], joined.clicked[both], joined.units[both]
    losses = _losses(second, clicked) - _losses(first, clicked)
    loss = float(losses.mean())
    return Paired(
        joined.version,
        joined.shadow_version,
        items=len(first),
        clicks=int(clicked.sum()),
        units=len(np.unique(units)),
        auc=ranking(first, clicked).auc,
        shadow_auc=ranking(second, clicked).auc,
        auc_gain=_measured(auc_gain(first, second, clicked, units)),
        logloss_gain=Measured(loss, math.sqrt(clustered((losses - loss) / len(losses), units))),
        calibration=_measured(calibration(first, clicked, units)),
        shadow_calibration=_measured(calibration(second, clicked, units)),
    )


def told(found: Paired) -> dict[str, Any]:
    """As JSON, with 95 % intervals."""
    return {
        "items": found.items,
        "clicks": found.clicks,
        "units": found.units,
        "auc": _number(found.auc),
        "shadow_auc": _number(found.shadow_auc),
        **_told("auc_gain", found.auc_gain),
        **_told("logloss_gain", found.logloss_gain),
        **_told("calibration", found.calibration),
        **_told("shadow_calibration", found.shadow_calibration),
    }


def _told(name: str, measured: Measured) -> dict[str, Any]:
    low, high = measured.bounds(NORMAL)
    known = math.isfinite(low) and math.isfinite(high)
    return {name: _number(measured.value), f"{name}_interval": [low, high] if known else None}


def _losses(scores: Floats, clicked: npt.NDArray[np.bool_]) -> Floats:
    kept = np.clip(scores, LEAST, 1 - LEAST)
    return np.asarray(-np.log(np.where(clicked, kept, 1 - kept)), np.float64)


def _measured(estimate: Estimate) -> Measured:
    return Measured(float(estimate.value), math.sqrt(float(estimate.variance)))


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
