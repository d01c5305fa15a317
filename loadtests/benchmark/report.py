"""What was measured, as JSON and as Markdown."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmark.check import Check, Facts
from benchmark.closed import Point
from benchmark.session import Session, median
from benchmark.work import ROOT

Json = dict[str, Any]


def report(session: Session, checks: Sequence[Check]) -> Json:
    """Everything, as JSON values: what is not a number is null."""
    found = {
        "machine": machine(),
        "plan": asdict(session.plan),
        "checks": [{**asdict(check), "verdict": check.verdict} for check in checks],
        "points": [asdict(point) for point in session.points],
        "module_alone": session.alone,
        "arrivals": session.arrivals,
    }
    return dict(_plain(found))


def markdown(session: Session, checks: Sequence[Check]) -> str:
    """The rows, then every point's medians, then the open loops."""
    plan, of = session.plan, machine()
    head = f"{of['cpu']}, {of['cores']} cores, Python {of['python']}, torch {of['torch']}; "
    head += f"{plan.workers} workers; medians of {plan.repeats} interleaved runs of {plan.seconds} s."
    rows = [_check(check) for check in checks]
    points = [_point(median(cell)) for cell in _cells(session.points)]
    parts = [head, _table(("row", "measured", "value", "must", "aim", "verdict", "beside it"), rows)]
    if points:
        names = "row|server|work|connections|requests/s|p50 ms|p99 ms|errors|CPU ms a request|PSS MB|RSS MB|"
        names += "other CPU s|stolen s"
        parts.append(_table(names.split("|"), points))
    if session.alone:
        parts.append(_table(("module alone, all cores", "work", "calls/s"), _alone(session.alone)))
    return "\n\n".join(parts) + "\n"


def machine() -> Json:
    """What the figures depend on."""
    text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    asked = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "cpu": model.group(1) if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "uvicorn", "uvloop", "orjson", "msgspec")},
        "commit": asked.stdout.strip() or None,
    }


def number(value: object) -> str:
    """Three figures or so, for people."""
    if not isinstance(value, float | int):
        return str(value) if value is not None else ""
    if isinstance(value, float) and not math.isfinite(value):
        return "none"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _check(check: Check) -> tuple[str, ...]:
    sign = "≤" if check.at_most else "≥"
    bounds = [f"{sign} {number(bound)}" if bound is not None else "" for bound in (check.must, check.aim)]
    return (check.row, check.what, number(check.value), *bounds, check.verdict, _facts(check.facts))


def _facts(facts: Facts) -> str:
    return "; ".join(f"{name} {number(value)}" for name, value in facts.items() if value)


def _point(point: Point) -> tuple[str, ...]:
    return tuple(number(value) for name, value in asdict(point).items() if name != "client_cpu_s")


def _cells(points: Sequence[Point]) -> list[list[Point]]:
    cells: dict[tuple[str, str, str, int], list[Point]] = {}
    for point in points:
        cells.setdefault((point.row, point.server, point.work, point.connections), []).append(point)
    return list(cells.values())


def _alone(taken: Sequence[Mapping[str, object]]) -> list[tuple[str, ...]]:
    rates: dict[tuple[str, str], list[float]] = {}
    for one in taken:
        rates.setdefault((str(one["what"]), str(one["work"])), []).append(float(str(one["per_second"])))
    return [(what, kind, number(statistics.median(values))) for (what, kind), values in rates.items()]


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
