"""Intervals and p-values that stay valid however often, and at whatever moment, somebody looks.

The asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (arXiv 2103.06476, eq. 9, 155 and
161). All functions take arrays or numbers; NaN in, NaN out.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from service.experiments.statistics import Estimate

Floats = npt.NDArray[np.float64]


def rho(alpha: float, planned: float) -> float:
    """The mixture's parameter for which the interval is tightest at `planned` observations."""
    return math.sqrt((-2.0 * math.log(alpha) + math.log(1.0 - 2.0 * math.log(alpha))) / planned)


def half_width(estimate: Estimate, size: Floats, *, alpha: float, planned: float) -> Floats:
    """Half of the interval around `estimate` after `size` observations, at 1 - alpha for all sizes together."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = size * rho(alpha, planned) ** 2
        bound = 2.0 * (1.0 + 1.0 / scaled) * np.log(np.sqrt(scaled + 1.0) / alpha)
        return np.asarray(np.sqrt(estimate.variance * bound), np.float64)


def p_value(estimate: Estimate, size: Floats, *, alpha: float, planned: float) -> Floats:
    """The p-value against 0: below `alpha` where the interval excludes 0, and only there."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = size * rho(alpha, planned) ** 2
        squared = estimate.value**2 / estimate.variance
        return np.asarray(np.minimum(1.0, np.sqrt(scaled + 1.0) * np.exp(-squared * scaled / (scaled + 1.0) / 2.0)))
