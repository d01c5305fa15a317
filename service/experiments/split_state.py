"""All epochs' split checks in one word, and what breaks an experiment in a sentence each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from service.experiments.evidence import Epoch
from service.experiments.settings import ReportSettings
from service.experiments.split_check import UnitCheck, check_units, combined, p_of

State = Literal["collecting", "ok", "warning", "mismatch"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What makes an experiment's figures worthless; `version` where one is to blame."""

    text: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class SplitState:
    """`checks` are the epochs' in their order; `p` is that of all of them together."""

    state: State
    p: float
    checks: tuple[UnitCheck, ...]
    faults: tuple[Fault, ...]


def check_splits(epochs: Sequence[Epoch], settings: ReportSettings) -> SplitState:
    """Judge every epoch and all of them together."""
    checks = tuple(check_units(epoch) for epoch in epochs)
    p = p_of(combined([check.ln_factor for check in checks if check.ln_factor is not None]))
    state = state_of(p, any(check.enough for check in checks), settings)
    faults = [fault for epoch, check in zip(epochs, checks, strict=True) for fault in _certain(epoch, check)]
    if state == "mismatch":
        faults.insert(0, Fault(_mismatch(epochs, checks, p)))
    return SplitState(state, p, checks, tuple(faults))


def state_of(p: float, enough: bool, settings: ReportSettings) -> State:
    """A mismatch needs no least number: the p-value is exact for few units too, and a dead arm must not wait."""
    if p < settings.srm_mismatch:
        return "mismatch"
    if p < settings.srm_warning:
        return "warning"
    return "ok" if enough else "collecting"


def _certain(epoch: Epoch, check: UnitCheck) -> list[Fault]:
    faults = []
    if check.doubled:
        many = "1 unit is" if check.doubled == 1 else f"{check.doubled:,} units are"
        faults.append(Fault(f"{many} in more than one arm of epoch {epoch.number}"))
    for version in check.unweighted:
        faults.append(Fault(f"{version} has traffic in epoch {epoch.number}, where its weight is 0", version))
    return faults


def _mismatch(epochs: Sequence[Epoch], checks: Sequence[UnitCheck], p: float) -> str:
    number = max(range(len(checks)), key=lambda at: checks[at].ln_factor or 0.0)
    epoch, counts = epochs[number], checks[number].counts
    weighted = [arm for arm in epoch.arms if arm.share > 0]
    whole = sum(counts[arm.version] for arm in weighted) or 1
    parts = ", ".join(f"{arm.version} {counts[arm.version] / whole:.2%} for {arm.share:.2%}" for arm in weighted)
    return f"units do not fall to the versions as the split of epoch {epoch.number} says ({parts}; p = {p:.1g})"
