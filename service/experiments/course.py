"""What is done to a plan, each as one transaction: begun, moved on, ended. The split changes with it or not at all."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from service import changes
from service.changes import Conflict, Proposal, Stale, Terms, Unknown
from service.experiments.guardrails import ArmCounts, Heard, Signs
from service.experiments.plans import Course, Move, Plan
from service.state import Document, Transaction
from service.state import plans as stored

WHO = "plan"
RECENT_SECONDS = 60


def begin(change: Transaction, experiment: str, plan: Plan, terms: Terms, now: float) -> tuple[Course, Document]:
    """Take the first step of a plan, in the place of any other of this experiment.

    Raises Unknown for a version or an experiment that is not there, Conflict for one that cannot be ramped, Stale.
    """
    document = change.document()
    if plan.version not in terms.known and plan.version not in document.named:
        raise Unknown(f"no version '{plan.version}' in the artifacts")
    if experiment != document.experiment:
        if any(row.traffic["experiment"] == experiment for row in change.history()):
            raise Conflict(f"experiment '{experiment}' is over; '{document.experiment}' is the one that runs")
        raise Unknown(f"no experiment '{experiment}'; '{document.experiment}' is the one that runs")
    if plan.version == document.default:
        raise Conflict(f"version '{plan.version}' is the default, which a plan is to replace or to keep")
    if plan.version not in document.weights:
        raise Conflict(f"version '{plan.version}' has no weight; give it some first (PUT /models/weights)")
    if len(document.weights) == 1:
        raise Conflict(f"version '{plan.version}' has all the weight; give the version to compare it with some too")
    done = _cover(change, document, plan, 0, terms)
    course = Course(
        experiment=experiment,
        plan=plan,
        serial=_last_serial(change, experiment) + 1,
        state="running",
        why=f"step 1 of {len(plan.steps)}: coverage {plan.steps[0].coverage:g}, for {plan.steps[0].seconds:g} s",
        step=0,
        since=now,
        started=now,
        epoch=done.epoch,
        counted_from=done.epoch,
        default=str(document.default),
        shares=document.shares,
    )
    stored.drop_counts(change, experiment)
    stored.write_plan(change, row_of(course))
    return course, done


def stop(change: Transaction, experiment: str, who: str) -> Course:
    """End a plan where it is; one that is over stays as it is. Raises Unknown where there is none."""
    row = stored.read_plan(change, experiment)
    if row is None:
        raise Unknown(f"no plan for experiment '{experiment}'")
    course = course_of(row)
    return _end(change, course, f"stopped by {who} in step {course.step + 1}") if course.active else course


def adopt(change: Transaction, seen: Course) -> Course | None:
    """Look at the split of a plan: the plan as it is now, None where it is over.

    What somebody else made of the split ends it, unless that changed neither its version's part nor its coverage.
    """
    row, document = stored.read_plan(change, seen.experiment), change.document()
    course = None if row is None else course_of(row)
    if course is None or not course.active:
        return None
    step, version = course.plan.steps[course.step], course.plan.version
    same = (document.experiment, document.default, document.coverage) == (
        course.experiment,
        course.default,
        step.coverage,
    )
    if not same or version not in document.weights:
        past = change.past(document.epoch)
        _end(change, course, f"the split was changed by {past.who if past else 'somebody'} (epoch {document.epoch})")
        return None
    if document.shares != course.shares:
        course = replace(course, serial=course.serial + 1, shares=document.shares, counted_from=document.epoch)
        stored.write_plan(change, row_of(course))
    return course


def signs_of(view: Transaction, course: Course, heard: Heard, now: float) -> Signs:
    """What was counted since the plan began, as its guardrails want it."""
    version, arms, in_step = course.plan.version, {True: ArmCounts(), False: ArmCounts()}, 0
    for key, counts in stored.read_counts(view, course.experiment, course.counted_from):
        mine, recent = key.version == version, key.slot >= now - RECENT_SECONDS
        arm = arms[mine]
        arms[mine] = ArmCounts(
            arm.requests + counts.requests,
            arm.errors + counts.errors,
            arm.timed + counts.requests * recent,
            arm.slow + counts.slow * recent,
        )
        in_step += counts.requests * (mine and key.epoch >= course.epoch)
    return Signs(course.shares.get(version, 0.0), arms[True], arms[False], in_step, heard)


def carry_out(change: Transaction, seen: Course, move: Move, epoch: int, now: float) -> tuple[Course, Document] | None:
    """Do what was decided by the plan as `seen` and the split of `epoch`; None where either is another by now.

    A step or a promotion that the stored state does not allow makes the plan hold, with the reason.
    """
    row, document = stored.read_plan(change, seen.experiment), change.document()
    if row is None or row.serial != seen.serial or document.epoch != epoch:
        return None
    course = replace(seen, serial=seen.serial + 1, state=move.state, why=move.why)
    terms = Terms(known=(), epochs={epoch}, who=WHO)
    try:
        if move.act == "step":
            document = _cover(change, document, seen.plan, seen.step + 1, terms)
            course = replace(course, step=seen.step + 1, since=now, epoch=document.epoch)
        elif move.act == "roll_back":
            document = changes.take_off(change, seen.plan.version, terms, f"plan: guardrail {move.why}").new
        elif move.act == "promote":
            proposal = Proposal({seen.plan.version: 1}, default=seen.plan.version, comment=f"plan: {move.why}")
            document = changes.put_weights(change, proposal, terms).new
    except (Conflict, Unknown, Stale) as error:
        course = replace(course, state="holding", why=f"the next step is not possible: {error}")
    stored.write_plan(change, row_of(course))
    return course, document


def row_of(course: Course) -> stored.Row:
    """As it is stored."""
    body = {**asdict(course), "plan": course.plan.body(), "shares": dict(course.shares)}
    return stored.Row(course.experiment, course.serial, course.active, body)


def course_of(row: stored.Row) -> Course:
    """As it was before it was stored."""
    return Course(**{**row.body, "plan": Plan.of(row.body["plan"])})


def told(course: Course) -> dict[str, Any]:
    """The plan as operators read it: what was asked for, how far it is, and why."""
    return {
        "experiment": course.experiment,
        **course.plan.body(),
        "state": course.state,
        "why": course.why,
        "step": course.step + 1,
        "since": _iso(course.since),
        "started": _iso(course.started),
        "epoch": course.epoch,
    }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _cover(change: Transaction, document: Document, plan: Plan, step: int, terms: Terms) -> Document:
    """Set the coverage of a step, the split inside it as it is."""
    coverage = plan.steps[step].coverage
    comment = f"plan: step {step + 1} of {len(plan.steps)}, coverage {coverage:g}"
    proposal = Proposal(document.weights, coverage=coverage, comment=comment)
    return changes.put_weights(change, proposal, replace(terms, who=WHO)).new


def _end(change: Transaction, course: Course, why: str) -> Course:
    course = replace(course, serial=course.serial + 1, state="stopped", why=why)
    stored.write_plan(change, row_of(course))
    return course


def _last_serial(view: Transaction, experiment: str) -> int:
    row = stored.read_plan(view, experiment)
    return 0 if row is None else row.serial
