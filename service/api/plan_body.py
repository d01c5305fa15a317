"""The body of PUT /experiments/{name}/plan: every fault named, nothing guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.api.proposal import BadBody, Faults, number_of, object_of
from service.experiments.guardrails import Guardrails
from service.experiments.plans import Plan, Promote, Step
from service.feature_names import shorten
from service.names import RULE, is_version
from service.scoring.schema import nearest

KEYS = ("version", "steps", "guardrails", "promote")
MAX_STEPS = 100


def parse_plan(body: object) -> Plan:
    """The plan that a decoded body asks for; BadBody lists its faults."""
    faults = Faults()
    given = object_of(body, KEYS, faults)
    version = given.get("version")
    if not is_version(version):
        faults.add(("version",), f"a version's name is needed: {RULE}", "version_name")
    steps = _steps(given.get("steps"), faults)
    guardrails, promote = _guardrails(given.get("guardrails"), faults), _promote(given.get("promote"), faults)
    if faults:
        raise BadBody(faults)
    return Plan(str(version), steps, guardrails, promote)


def _steps(value: object, faults: Faults) -> tuple[Step, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_STEPS:
        faults.add(("steps",), f"steps are a list of 1 to {MAX_STEPS} objects of coverage and seconds", "steps")
        return ()
    steps: list[Step] = []
    before = 0.0
    for n, one in enumerate(value):
        given = _inner(one, ("steps", n), ("coverage", "seconds"), faults)
        coverage, seconds = number_of(given.get("coverage")), number_of(given.get("seconds"))
        if coverage is None or not 0 < coverage <= 1:
            faults.add(("steps", n, "coverage"), "a step's coverage is a number above 0 and at most 1", "coverage")
        elif coverage < before:
            faults.add(("steps", n, "coverage"), "a step's coverage is not below that of the step before", "coverage")
        if seconds is None or seconds <= 0:
            faults.add(("steps", n, "seconds"), "a step's time is a number of seconds above 0", "seconds")
        before = max(before, coverage or 0.0)
        steps.append(Step(coverage or 0.0, seconds or 0.0))
    return tuple(steps)


def _guardrails(value: object, faults: Faults) -> Guardrails:
    given = _inner({} if value is None else value, ("guardrails",), ("errors", "p99_ms", "ctr_margin"), faults)
    errors = given.get("errors", True)
    if not isinstance(errors, bool):
        faults.add(("guardrails", "errors"), "true or false", "bool_type")
    p99, margin = number_of(given.get("p99_ms")), number_of(given.get("ctr_margin"))
    if given.get("p99_ms") is not None and (p99 is None or p99 <= 0):
        faults.add(("guardrails", "p99_ms"), "null, or a number of milliseconds above 0", "p99_ms")
    if given.get("ctr_margin") is not None and (margin is None or not 0 <= margin < 1):
        faults.add(("guardrails", "ctr_margin"), "null, or a relative loss from 0 to 1", "ctr_margin")
    return Guardrails(errors is True, p99, margin)


def _promote(value: object, faults: Faults) -> Promote | None:
    if value is None:
        return None
    given = _inner(value, ("promote",), ("seconds", "margin"), faults)
    seconds, margin = number_of(given.get("seconds")), number_of(given.get("margin"))
    if seconds is None or seconds < 0:
        faults.add(("promote", "seconds"), "a number of seconds of at least 0", "seconds")
    if margin is None or not -1 < margin < 1:
        faults.add(("promote", "margin"), "a relative loss between -1 and 1", "margin")
    return Promote(seconds or 0.0, margin or 0.0)


def _inner(value: object, loc: tuple[str | int, ...], keys: tuple[str, ...], faults: Faults) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        faults.add(loc, f"an object of {', '.join(keys)}", "dict_type")
        return {}
    for key in value:
        if key not in keys:
            shown = shorten(key)
            faults.add((*loc, shown), f"no such field{nearest(shown, keys)}", "extra_forbidden")
    return value
