"""One run of the benchmark: what it measures with, the servers it has started, the points it has taken."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path

from benchmark import closed, servers
from benchmark.closed import Point
from benchmark.modules import Modules, modules
from benchmark.payloads import read_bodies
from benchmark.servers import Server
from benchmark.work import Work

CONNECTIONS = (1, 8, 32)
BEST = (8, 32)  # capacity is the better of these
FLOORS = ("constant", "parsing")


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how often; seconds are those of one point."""

    workers: int
    seconds: int = 4
    repeats: int = 3
    warm: int = 2
    swaps: int = 20
    cycles: int = 50
    fresh: int = 5
    open_seconds: int = 10


@dataclass
class Session:
    """Servers are started when first asked for and end with the session; all of them wait while one is measured."""

    work: Work
    client: Path  # the program that `compile_client` made
    plan: Plan
    folder: Path
    stack: ExitStack  # of what was started
    row: str = ""  # measured now: medians are of its own points alone
    points: list[Point] = field(default_factory=list)
    alone: list[dict[str, object]] = field(default_factory=list)
    arrivals: list[dict[str, object]] = field(default_factory=list)
    _servers: dict[str, Server] = field(default_factory=dict)
    _modules: Modules | None = None

    def server(self, name: str) -> Server:
        """`constant`, `parsing`, `service` (version v1), `one_worker`, `three_versions` (50/30/20), or `apart`, the
        service with a worker less."""
        fresh = name not in self._servers
        server = self.server_unchecked(name)
        if fresh and name in ("service", "one_worker"):
            self._check(server)
        return server

    def server_unchecked(self, name: str) -> Server:
        """As `server`, but the scores are not compared with the module's: nothing else is started."""
        if name not in self._servers:
            self._servers[name] = self.stack.enter_context(self._starting(name))
        return self._servers[name]

    @property
    def modules(self) -> Modules:
        if self._modules is None:
            started = modules(self.work.publish("v1"), self.work.bodies, self.plan.workers)
            self._modules = self.stack.enter_context(started)
        return self._modules

    def clear(self) -> None:
        """End all that was started. PSS is to be read so: a library's pages are shared with whoever maps it too."""
        self.stack.close()
        self._servers.clear()
        self._modules = None

    def in_turns(self, turns: Sequence[Callable[[], object]]) -> None:
        """Every turn once, then all again, as often as the plan repeats."""
        for _ in range(self.plan.repeats):
            for turn in turns:
                turn()

    def point(self, name: str, kind: str, connections: int) -> Point:
        """Measure one point, on fresh connections."""
        found = closed.run(self.server(name), kind, self.work.bodies, connections, self.plan.seconds, self.row)
        self.points.append(found)
        say(
            f"{name:<14} {kind:<9} c{connections:<3}{found.per_second:>9.0f}/s  p50 {found.p50_ms:.2f}  "
            f"p99 {found.p99_ms:.2f} ms  errors {found.errors}  {found.cpu_ms:.3f} CPU ms  PSS {found.pss_mb:.0f} MB  "
            f"other {found.other_cpu_s:.1f} s  stolen {found.stolen_s:.1f} s"
        )
        return found

    def warm(self, names: Sequence[str], kind: str) -> None:
        for name in names:
            closed.run(self.server(name), kind, self.work.bodies, 8, self.plan.warm)

    def module(self, what: str, kind: str) -> float:
        """Measure calls a second of the module alone on all cores."""
        found = self.modules.per_second(what, kind, self.plan.seconds)
        self.alone.append({"row": self.row, "what": what, "work": kind, "per_second": found})
        say(f"{'module alone':<14} {kind:<9} {what:<7}{found:>6.0f}/s")
        return found

    def module_median(self, what: str, kind: str) -> float:
        """The row's median of what `module` measured."""
        key = (self.row, what, kind)
        return statistics.median(
            float(str(one["per_second"])) for one in self.alone if (one["row"], one["what"], one["work"]) == key
        )

    def cell(self, name: str, kind: str, connections: int) -> Point:
        """The medians of the row's points there."""
        key = (self.row, name, kind, connections)
        return median([one for one in self.points if (one.row, one.server, one.work, one.connections) == key])

    def best(self, name: str, kind: str) -> Point:
        """The cell of the concurrency of BEST with the higher median rate."""
        return max((self.cell(name, kind, connections) for connections in BEST), key=lambda cell: cell.per_second)

    def _starting(self, name: str) -> AbstractContextManager[Server]:
        workers = self.plan.workers
        if name in FLOORS:
            return servers.floor(name, name, self.folder, workers=workers)
        weights = {"three_versions": "v1=50,v2=30,v3=20"}.get(name, "v1=1")
        for version in weights.split(","):
            self.work.publish(version.partition("=")[0])
        if name == "one_worker":
            workers = 1
        if name == "apart":
            workers = max(1, workers - 1)
        say(f"starting {name}")
        return servers.service(name, self.work.artifacts, self.folder, weights, workers=workers)

    def _check(self, server: Server) -> None:
        """The answers are those of the module, before their speed is measured."""
        for kind in ("one_row", "rank_100"):
            for body, expected in zip(read_bodies(self.work.bodies, kind), self.modules.expect(kind), strict=False):
                servers.check_answer(server, body, expected)


def median(points: Sequence[Point]) -> Point:
    """Each figure's own median; the points must be of one cell."""
    first = points[0]
    figures = {one.name: statistics.median(getattr(point, one.name) for point in points) for one in fields(Point)[4:]}
    return Point(first.row, first.server, first.work, first.connections, **figures)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
