"""When a plan must take its version off the traffic: more errors than its share, too slow, or fewer clicks. Pure.

Errors split like the traffic where the arms are equal, so their counts are held against the shares by the Bayes factor
of `split_check`, which may be looked at any time: a version with three times the errors is found after some 45 of them,
an equal one is ever accused with 3 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from service.experiments.split_check import ERROR_STRENGTH, ln_bayes_factor, p_of

ERROR_ALPHA = 0.05
# A p99 above its bound: so many requests of the last minute, and more slow ones than 1 % of them would give by chance.
LEAST_TIMED = 100
SLOW_SHARE = 0.01
SLOW_ALPHA = 0.001

Srm = Literal["collecting", "ok", "warning", "mismatch"]


@dataclass(frozen=True, slots=True)
class Guardrails:
    """What is watched: errors, the 99th percentile of the answer's time, the relative loss of CTR. None is not."""

    errors: bool = True
    p99_ms: float | None = None
    ctr_margin: float | None = None


class ArmCounts(NamedTuple):
    """Requests that the split gave to an arm: all of them and their errors; of the last minute, and slower than the
    bound."""

    requests: int = 0
    errors: int = 0
    timed: int = 0
    slow: int = 0


class Heard(NamedTuple):
    """What the experiment's report says of a version: its lift's interval that is valid at any time, the state of the
    split, and why a leak is suspected."""

    lift: tuple[float, float] | None = None
    srm: Srm = "collecting"
    suspicion: str | None = None


class Signs(NamedTuple):
    """All that a plan judges by. `share` is the version's part of the covered units, `others` all other arms together,
    `in_step` the version's requests since the step began."""

    share: float
    version: ArmCounts
    others: ArmCounts
    in_step: int
    heard: Heard = Heard()


def tripped(guardrails: Guardrails, signs: Signs) -> str | None:
    """Why the version must lose its weight, in words; None where it need not."""
    if guardrails.errors and (why := _errors(signs)):
        return why
    if guardrails.p99_ms is not None and (why := _slow(guardrails.p99_ms, signs.version)):
        return why
    lift = signs.heard.lift
    if guardrails.ctr_margin is not None and lift is not None and lift[1] < -guardrails.ctr_margin:
        return f"CTR: its lift is {lift[1]:+.1%} at most, a loss beyond the margin of {guardrails.ctr_margin:.1%}"
    return None


def binomial_tail(successes: int, trials: int, share: float) -> float:
    """P(X >= successes) of a binomial."""
    if successes <= 0:
        return 1.0
    below = math.fsum(
        math.exp(
            math.lgamma(trials + 1)
            - math.lgamma(k + 1)
            - math.lgamma(trials - k + 1)
            + k * math.log(share)
            + (trials - k) * math.log1p(-share)
        )
        for k in range(successes)
    )
    return max(0.0, 1.0 - below)


def _errors(signs: Signs) -> str | None:
    found, share = (signs.others.errors, signs.version.errors), signs.share
    if not 0 < share < 1 or found[1] <= share * sum(found):
        return None
    p = p_of(float(ln_bayes_factor(found, (1 - share, share), ERROR_STRENGTH)))
    if p >= ERROR_ALPHA:
        return None
    return f"errors: {found[1]} of {sum(found)} are its own, with {share:.1%} of the traffic (p = {p:.2g})"


def _slow(bound: float, arm: ArmCounts) -> str | None:
    # Far beyond 1 % the exact tail is not needed, and would be a long sum.
    few = arm.timed < LEAST_TIMED or arm.slow <= SLOW_SHARE * arm.timed
    if few or (arm.slow < 5 * SLOW_SHARE * arm.timed and binomial_tail(arm.slow, arm.timed, SLOW_SHARE) >= SLOW_ALPHA):
        return None
    return f"p99: {arm.slow} of {arm.timed} requests of the last minute took longer than {bound:g} ms"
