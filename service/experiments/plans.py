"""A plan: a version's way to more traffic, step by step, what must not happen on it, and when it takes over. Pure.

    running ──▶ the step's time is up ──▶ next step ──▶ ... ──▶ watching ──▶ promoted
       │               └─ evidence missing, or the split in doubt: holding
       ├─ a guardrail: rolled_back
       └─ an operator: stopped

Time alone never moves a plan on: without evidence it holds. What a version scored offline is no part of any decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from service.experiments.guardrails import Guardrails, Signs, tripped

# With fewer requests of its version than these, a step has shown nothing.
LEAST_REQUESTS = 10
ACTIVE = ("running", "holding", "watching")

State = Literal["running", "holding", "watching", "rolled_back", "promoted", "stopped"]


@dataclass(frozen=True, slots=True)
class Step:
    """A coverage, and how long it is held at least."""

    coverage: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Promote:
    """When the version becomes the default: after so long, with the lower bound of its lift above minus the margin."""

    seconds: float
    margin: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What an operator asked for; at least one step, coverages that never fall."""

    version: str
    steps: tuple[Step, ...]
    guardrails: Guardrails = field(default_factory=Guardrails)
    promote: Promote | None = None

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Plan:
        """The plan of a `body` that was checked."""
        promote = body["promote"]
        return cls(
            body["version"],
            tuple(Step(**step) for step in body["steps"]),
            Guardrails(**body["guardrails"]),
            None if promote is None else Promote(**promote),
        )

    def body(self) -> dict[str, Any]:
        """The plan as JSON, as it is asked for."""
        values = asdict(self)
        return {**values, "steps": list(values["steps"])}


@dataclass(frozen=True, slots=True)
class Course:
    """How far a plan is. `serial` counts its changes; times in seconds since 1970.

    `step` is the current one from 0, set at `since` in epoch `epoch`. `shares` are those inside the coverage, and
    `counted_from` the first epoch with them: evidence of other splits is not mixed with it.
    """

    experiment: str
    plan: Plan
    serial: int
    state: State
    why: str
    step: int
    since: float
    started: float
    epoch: int
    counted_from: int
    default: str
    shares: Mapping[str, float]

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    def is_due(self, now: float) -> bool:
        """Whether the step has had its time."""
        return now - self.since >= self.plan.steps[self.step].seconds


class Move(NamedTuple):
    """What is to be done: stay in a state, or act and be in it."""

    act: Literal["stay", "step", "roll_back", "promote"]
    state: State
    why: str


def decide(course: Course, signs: Signs | None, now: float) -> Move:
    """The next move of an active plan by what is known; `signs` None where nothing could be read."""
    plan, number = course.plan, f"step {course.step + 1} of {len(course.plan.steps)}"
    if signs is not None and (trip := tripped(plan.guardrails, signs)):
        return Move("roll_back", "rolled_back", trip)
    step = plan.steps[course.step]
    if not course.is_due(now):
        return Move("stay", "running", f"{number}: coverage {step.coverage:g}, for {step.seconds:g} s")
    if signs is None or (obstacle := _obstacle(signs)):
        why = "the evidence cannot be read" if signs is None else obstacle
        return Move("stay", "holding", f"{number} has had its time; {why}")
    if course.step + 1 < len(plan.steps):
        coverage = plan.steps[course.step + 1].coverage
        return Move("step", "running", f"step {course.step + 2} of {len(plan.steps)}: coverage {coverage:g}")
    return _at_the_end(course, signs, now)


def _obstacle(signs: Signs) -> str | None:
    if signs.in_step < LEAST_REQUESTS:
        return f"the version has had {signs.in_step} requests in it, too few to go on"
    if signs.heard.srm in ("warning", "mismatch"):
        return f"the units do not split as they should (SRM {signs.heard.srm})"
    return None


def _at_the_end(course: Course, signs: Signs, now: float) -> Move:
    promote, heard = course.plan.promote, signs.heard
    if promote is None:
        return Move("stay", "watching", "every step is done; the guardrails stay on")
    if now - course.started < promote.seconds:
        return Move(
            "stay", "watching", f"every step is done; to be promoted after {promote.seconds:g} s at the earliest"
        )
    if heard.lift is None:
        return Move("stay", "holding", "to be promoted, but its lift is not known yet")
    if heard.suspicion is not None:
        return Move("stay", "holding", f"to be promoted, but a leak is suspected: {heard.suspicion}")
    if heard.lift[0] <= -promote.margin:
        bound = f"its lift may be as low as {heard.lift[0]:+.1%}, it must be above {-promote.margin:+.1%}"
        return Move("stay", "watching", f"to be promoted, but {bound}")
    return Move("promote", "promoted", f"its lift is at least {heard.lift[0]:+.1%}, after {promote.seconds:g} s")
