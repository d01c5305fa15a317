"""The rows that are capacities: closed loop, medians of interleaved runs, as ratios to floors of the same run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial

from benchmark import closed
from benchmark.accounts import memory
from benchmark.check import Check, Facts
from benchmark.closed import Point
from benchmark.session import BEST, CONNECTIONS, FLOORS, Session, say

RANKING = "rank_100"


def one_row(session: Session) -> list[Check]:
    """Rows one at a time: what stands around the model is what is measured."""
    _measure(session, "one_row", ["forward"])
    service, floor = (session.cell(name, "one_row", 32) for name in ("service", "constant"))
    ratio = service.per_second / floor.per_second
    facts = _beside(session, "one_row", "forward", service)
    return [Check("one_row", "32 connections, share of the constant floor", ratio, 0.45, 0.55, facts=facts)]


def rank_100(session: Session) -> list[Check]:
    _measure(session, RANKING, ["join", "rank", "score"])
    best, floor = session.best("service", RANKING), session.best("constant", RANKING)
    ratio = best.per_second / floor.per_second
    facts = _beside(session, RANKING, "score", best)
    return [Check("rank_100", "share of the constant floor", ratio, facts=facts)]


def rank_500(session: Session) -> list[Check]:
    _measure(session, "rank_500", ["join", "rank", "score"])
    best = session.best("service", "rank_500")
    ratio = best.per_second / session.module_median("join", "rank_500")
    facts = _beside(session, "rank_500", "score", best)
    return [Check("rank_500", "share of the module's join alone on as many cores", ratio, 0.6, 0.75, facts=facts)]


def rows_100(session: Session) -> list[Check]:
    """100 rows of 39 named fields a request: reading them is most of the work."""
    _measure(session, "rows_100", ["forward"])
    best, floor = session.best("service", "rows_100"), session.best("parsing", "rows_100")
    ratio = best.per_second / floor.per_second
    return [Check("rows_100", "share of the parsing floor", ratio, facts=_beside(session, "rows_100", "forward", best))]


def scaling(session: Session) -> list[Check]:
    """Twice the candidates, and twice the workers."""
    loads = [("service", "rank_500"), ("service", "rank_1000"), ("one_worker", "rank_500")]
    for name, kind in loads:
        session.warm([name], kind)
    points = [partial(session.point, name, kind, connections) for name, kind in loads for connections in BEST]
    session.in_turns(points)
    half, whole, one = (session.best(name, kind) for name, kind in loads)
    cost = half.per_second / whole.per_second
    workers = session.plan.workers
    facts: Facts = {"rank_500": half.per_second, "rank_1000": whole.per_second, "rank_500, one worker": one.per_second}
    return [
        Check("scaling", "cost of 1,000 candidates to that of 500", cost, 2.2, at_most=True, facts=facts),
        Check("scaling", f"{workers} workers to one of one thread", half.per_second / one.per_second, 1.7, 1.9),
    ]


def connections(session: Session) -> list[Check]:
    """Fresh sets of connections: a worker that got few of them would stand idle."""
    session.warm(["service"], RANKING)
    rates = [session.point("service", RANKING, 32).per_second for _ in range(session.plan.fresh)]
    ratio = min(rates) / statistics.median(rates)
    facts: Facts = {"slowest": min(rates), "median": statistics.median(rates), "fastest": max(rates)}
    what = f"slowest to median of {len(rates)} fresh sets of 32 connections"
    return [Check("connections", what, ratio, 0.85, facts=facts)]


def three_versions(session: Session) -> list[Check]:
    """A 50/30/20 split of three versions beside one version alone."""
    names = ["service", "three_versions"]
    session.warm(names, RANKING)
    session.in_turns([partial(session.point, name, RANKING, count) for count in BEST for name in names])
    one, three = (session.best(name, RANKING) for name in names)
    facts: Facts = {"one version": one.per_second, "three versions": three.per_second}
    return [Check("three_versions", "three to one version", three.per_second / one.per_second, 0.9, facts=facts)]


def memory_held(session: Session) -> list[Check]:
    """PSS of the whole service, with nothing else of this benchmark running."""
    session.work.publish("v1")
    session.clear()
    server = session.server_unchecked("service")
    idle = memory(server.pid)
    for kind in ("one_row", "rows_100", RANKING, "rank_500"):
        closed.run(server, kind, session.work.bodies, 8, session.plan.warm)
    loaded = memory(server.pid)
    say(f"memory: PSS {idle.pss_mb:.0f} MB once ready, {loaded.pss_mb:.0f} MB after load; RSS {loaded.rss_mb:.0f} MB")
    facts: Facts = {"once ready": idle.pss_mb, "RSS": loaded.rss_mb}
    return [Check("memory", "PSS after load, MB", loaded.pss_mb, 580, 340, at_most=True, facts=facts)]


def _measure(session: Session, kind: str, alone: Sequence[str]) -> None:
    """The service, both floors and the module alone, in turns."""
    names = ["service", *FLOORS]
    session.warm(names, kind)
    modules = [partial(session.module, what, kind) for what in alone]
    points = [partial(session.point, name, kind, count) for count in CONNECTIONS for name in names]
    session.in_turns([*modules, *points])


def _beside(session: Session, kind: str, whole: str, service: Point) -> Facts:
    """What is told of a capacity: its latency there and its share of each floor."""
    alone = "the engine alone" if whole == "score" else f"the module ({whole})"
    floors = {f"of {name}": service.per_second / _like(session, name, service).per_second for name in FLOORS}
    return {
        "requests/s": service.per_second,
        "connections": float(service.connections),
        "p50 ms": service.p50_ms,
        "p99 ms": service.p99_ms,
        "CPU ms": service.cpu_ms,
        **floors,
        f"of {alone}": service.per_second / session.module_median(whole, kind),
    }


def _like(session: Session, name: str, service: Point) -> Point:
    """The floor beside a point of the service: at 32 connections for single rows, else at its own best."""
    return session.cell(name, service.work, 32) if service.work == "one_row" else session.best(name, service.work)
