"""One state and one sentence for an experiment.

broken          the figures mean nothing: units fall wrongly, are in two arms, or reached an arm without weight
better, worse   the interval of a version's lift lies above, or below, 0
no_difference   the interval lies within the margin on both sides: whatever difference there is does not matter
collecting      everything else
The first that holds is the state. An interval that leaves 0 decides even where it lies within the margin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from service.experiments.comparison import Comparison
from service.experiments.settings import ReportSettings
from service.experiments.split_state import Fault
from service.experiments.table import Basis

State = Literal["collecting", "better", "worse", "no_difference", "broken"]


class Verdict(NamedTuple):
    """`version` is the one that the state is about, None where it is about all."""

    state: State
    version: str | None
    text: str


def judge(
    default: str,
    comparisons: Mapping[str, Comparison],
    faults: Sequence[Fault],
    settings: ReportSettings,
    basis: Basis = "impressions",
    *,
    warned: bool = False,
) -> Verdict:
    """`comparisons` by challenger. Of several, the best that is better is named, else the worst that is worse."""
    if faults:
        return _broken(faults)
    states = {version: state_of(one, settings) for version, one in comparisons.items()}
    best = sorted(comparisons, key=lambda version: -float(comparisons[version].lift.value))
    better = [version for version in best if states[version] == "better"]
    worse = [version for version in reversed(best) if states[version] == "worse"]
    caution = "; the split is close to a mismatch, so wait before acting" if warned else ""
    if better or worse:
        decided = (better or worse)[0]
        text = _decided(decided, default, comparisons[decided], settings)
        return Verdict(states[decided], decided, f"{text}{caution}.")
    if states and set(states.values()) == {"no_difference"}:
        alone = best[0] if len(best) == 1 else None
        return Verdict("no_difference", alone, f"{_same(default, comparisons, settings)}{caution}.")
    return Verdict("collecting", None, f"{_waiting(default, comparisons, settings, basis)}{caution}.")


def state_of(comparison: Comparison, settings: ReportSettings) -> State:
    """What one comparison says by itself."""
    if not comparison.judged:
        return "collecting"
    _, low, high = comparison.lift
    if low > 0:
        return "better"
    if high < 0:
        return "worse"
    return "no_difference" if -settings.margin < low and high < settings.margin else "collecting"


def _broken(faults: Sequence[Fault]) -> Verdict:
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    text = (
        f"Broken: {faults[0].text}{more}. Find the cause, then start a new experiment: no figure here can be trusted."
    )
    return Verdict("broken", faults[0].version, text)


def _decided(version: str, default: str, comparison: Comparison, settings: ReportSettings) -> str:
    value, low, high = (abs(float(one)) for one in comparison.lift)
    word = "better" if comparison.lift.low > 0 else "worse"
    direction = "higher" if word == "better" else "lower"
    return (
        f"{version} is {word} than {default}: its click rate is {value:.1%} {direction}, between "
        f"{min(low, high):.1%} and {max(low, high):.1%} ({_sure(settings)})"
    )


def _same(default: str, comparisons: Mapping[str, Comparison], settings: ReportSettings) -> str:
    versions = " and ".join(comparisons)
    return f"{versions} and {default} differ by less than {settings.margin:.1%} of the click rate ({_sure(settings)})"


def _waiting(default: str, comparisons: Mapping[str, Comparison], settings: ReportSettings, basis: Basis) -> str:
    if not comparisons:
        return f"Nothing to compare yet: no version but {default} has had weight"
    said = [f"{version} {_missing(one, settings, basis)}" for version, one in comparisons.items()]
    return f"Collecting, against {default}: {'; '.join(said)}"


def _missing(comparison: Comparison, settings: ReportSettings, basis: Basis) -> str:
    """Why one comparison is no verdict yet."""
    if not comparison.time > 0:
        return f"has had no {basis} beside it in any epoch"
    if comparison.clicks < settings.least_clicks:
        return (
            f"has {int(comparison.clicks):,} clicks in the arm that has fewer, of the {settings.least_clicks:,} needed"
        )
    if comparison.time < settings.least_time:
        return f"has {comparison.time:.1%} of the planned size, of the {settings.least_time:.1%} needed"
    if not comparison.judged:
        return "gives no interval yet"
    value, low, high = (float(one) for one in comparison.lift)
    state = state_of(comparison, settings)
    if state == "no_difference":
        return f"makes no difference ({low:+.1%} to {high:+.1%})"
    return f"is at {value:+.1%}, which may be anything from {low:+.1%} to {high:+.1%}"


def _sure(settings: ReportSettings) -> str:
    return f"at {1 - settings.alpha:.0%}, however often one looks"
