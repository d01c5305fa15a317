"""The rows that are latencies: open loop, each counted from when the request was due."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from benchmark.accounts import memory
from benchmark.arriving import Arriving
from benchmark.check import Check, Facts
from benchmark.schedule import Fates, Phase
from benchmark.servers import Server, ServerError
from benchmark.session import BEST, Session, say

RANKING = "rank_100"
BUDGET_MS, REFUSAL_MS, RECOVERY_S = 50.0, 100.0, 2.0
SETTLE = 3.0  # seconds at the start of a load that are not counted
SWAP_SECONDS = 60.0  # more than a swap takes


def latency(session: Session) -> list[Check]:
    """Half of the capacity arrives, at the service and at the constant floor in turns."""
    rate = capacity(session) / 2
    found: dict[str, list[Facts]] = {"service": [], "constant": []}
    for repeat in range(session.plan.repeats):
        for name, summaries in found.items():
            fates = arrive(session, session.server(name), [(rate, SETTLE + session.plan.open_seconds)], seed=repeat)
            summaries.append(told(session, f"half load, {name}", fates, SETTLE, session.plan.open_seconds))
    facts: Facts = {"requests/s": rate}
    for name, summaries in found.items():
        for label in ("p50", "p99"):
            facts[f"{name} {label} ms"] = _median(summaries, f"accepted_{label}_ms")
    facts["late client p99 ms"] = _median(found["service"], "client_late_p99_ms")
    value = float(str(facts["service p99 ms"]))
    return [Check("latency", "p99 at half of the capacity, ms", value, None, 5.0, at_most=True, facts=facts)]


def overload(session: Session) -> list[Check]:
    """Three times the capacity arrives for a while, between times of half of it; on all cores, and once more with a
    core for the client alone, whose work then takes nothing from the service."""
    facts, recovery = _three_times(session, "service")
    accepted, refused = float(str(facts["accepted_p99_ms"])), float(str(facts["refused_p99_ms"]))
    checks = [
        Check("overload", "p99 of the accepted, ms", accepted, BUDGET_MS, at_most=True, facts=facts),
        Check("overload", "p99 of the refusals, ms", refused, REFUSAL_MS, at_most=True),
        Check("overload", "goodput to capacity", float(str(facts["goodput"])), 0.85),
        Check("overload", "seconds until settled", recovery, RECOVERY_S, at_most=True),
    ]
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        with _on(cores[:-1]):
            session.server("apart")
        with _on(cores[-1:]):
            apart, _ = _three_times(session, "apart")
        about = "goodput to capacity, the client on a core of its own"
        checks.append(Check("overload", about, float(str(apart["goodput"])), 0.85, facts=apart))
    return checks


def _three_times(session: Session, name: str) -> tuple[Facts, float]:
    """What became of them, and the seconds until all was as before."""
    full, seconds = capacity(session, name), session.plan.open_seconds
    phases = [(full / 2, SETTLE), (3 * full, float(seconds)), (full / 2, SETTLE + RECOVERY_S)]
    fates = arrive(session, session.server(name), phases, connections=512)
    found = told(session, f"three times the capacity, {name}", fates, SETTLE, seconds)
    goodput = float(str(found["accepted_per_second"])) / full
    recovery = fates.unsettled(SETTLE + seconds, BUDGET_MS / 1000)
    say(f"overload: goodput {goodput:.2f} of the capacity, settled {recovery:.2f} s after it")
    return {"capacity": full, "goodput": goodput, **found}, recovery


@contextmanager
def _on(cores: Sequence[int]) -> Iterator[None]:
    """Whatever is started inside runs on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def swap(session: Session) -> list[Check]:
    """A second version loads, warms and unloads while half of the capacity arrives, and again and again after that."""
    rate = capacity(session) / 2
    session.work.publish("v2")
    session.clear()
    server = session.server_unchecked("service")
    plan = session.plan
    session.warm(["service"], RANKING)
    quiet = [(rate, SETTLE + 2.0 * plan.open_seconds)]
    before = arrive(session, server, quiet)
    with arriving(session, server, [(rate, SWAP_SECONDS * plan.swaps)]) as arrived:
        time.sleep(SETTLE)
        started = time.monotonic()
        held = [_cycle(server, "v2") for _ in range(plan.swaps)]
        swapped = time.monotonic() - started
        during = arrived.end()
    held += [_cycle(server, "v2") for _ in range(plan.cycles - plan.swaps)]
    after = arrive(session, server, quiet, seed=2)
    calm = [told(session, "half load", fates, SETTLE, 2.0 * plan.open_seconds) for fates in (before, after)]
    busy = told(session, f"half load, {plan.swaps} swaps", during, SETTLE, swapped)
    p99 = _median(calm, "accepted_p99_ms")
    ratio = float(str(busy["accepted_p99_ms"])) / p99
    few = min(5, len(held))
    facts: Facts = {"p99 ms without": p99, "seconds a swap": swapped / plan.swaps, **busy}
    facts |= {f"PSS MB after {few}": held[few - 1], f"PSS MB after {len(held)}": held[-1]}
    return [
        Check("swap", f"p99 during {plan.swaps} swaps to p99 without", ratio, 1.5, 1.2, at_most=True, facts=facts),
        Check("swap", f"PSS after {len(held)} cycles to that after {few}", held[-1] / held[few - 1], 1.1, at_most=True),
    ]


def capacity(session: Session, name: str = "service") -> float:
    """Requests a second of a closed loop, measured now."""
    session.warm([name], RANKING)
    session.in_turns([partial(session.point, name, RANKING, count) for count in BEST])
    return session.best(name, RANKING).per_second


def arrive(session: Session, server: Server, phases: Sequence[Phase], connections: int = 64, seed: int = 1) -> Fates:
    with arriving(session, server, phases, connections, seed) as arrived:
        return arrived.fates()


@contextmanager
def arriving(
    session: Session, server: Server, phases: Sequence[Phase], connections: int = 64, seed: int = 1
) -> Iterator[Arriving]:
    """Rankings arrive meanwhile; the client is gone at the end, whatever happens."""
    files = sorted((session.work.bodies / RANKING).glob("*.json"))
    arrived = Arriving(
        session.client, server.address, files, phases, session.folder, connections=connections, seed=seed
    )
    try:
        yield arrived
    finally:
        arrived.kill()


def told(session: Session, what: str, fates: Fates, start: float, seconds: float) -> Facts:
    """The summary of what was due in those seconds, kept for the report."""
    found: Facts = dict(fates.between(start, start + seconds).summary(seconds))
    session.arrivals.append({"load": what, **found})
    figures = ", ".join(
        f"{name} {value:.2f}" for name, value in found.items() if isinstance(value, float) and value > 0
    )
    say(f"{what}: {figures}")
    return found


def _cycle(server: Server, version: str) -> float:
    """Load and unload a version; the PSS afterwards, MB."""
    status, answer = server.ask("PUT", f"/models/{version}", b"")
    if status != 200:
        raise ServerError(f"loading {version}: {status} {answer[:200].decode(errors='replace')}")
    status, answer = server.ask("DELETE", f"/models/{version}")
    if status not in (200, 202, 204):
        raise ServerError(f"unloading {version}: {status} {answer[:200].decode(errors='replace')}")
    until = time.monotonic() + 60
    while _state(server, version) != "available":
        if time.monotonic() > until:
            raise ServerError(f"{version} was not unloaded within a minute")
        time.sleep(0.1)
    return memory(server.pid).pss_mb


def _state(server: Server, version: str) -> str:
    models = json.loads(server.ask("GET", "/models")[1])["models"]
    return next(str(one["state"]) for one in models if one["version"] == version)


def _median(summaries: Sequence[Facts], name: str) -> float:
    return statistics.median(float(str(one[name])) for one in summaries)
