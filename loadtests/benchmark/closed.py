"""Closed loop: so many connections, each sending on as soon as it is answered, by wrk. Gives capacity, not latency."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmark.accounts import memory, moment
from benchmark.servers import Server

SCRIPT = Path(__file__).parent / "rotate.lua"


class LoadError(Exception):
    """The load could not be made: one plain line."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What wrk saw. `not_200` counts answers of 400 and more; `socket` failed connections, reads and writes."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    not_200: int
    socket: int
    timeout: int


@dataclass(frozen=True, slots=True)
class Point:
    """One run against one server, for a row of the report.

    Rates count answers of 200 alone; CPU and memory are of the server's whole process tree.
    """

    row: str
    server: str
    work: str
    connections: int
    per_second: float
    p50_ms: float
    p99_ms: float
    errors: int
    cpu_ms: float  # a request
    pss_mb: float
    rss_mb: float
    client_cpu_s: float
    other_cpu_s: float  # of other processes on the machine
    stolen_s: float


def find_wrk() -> str:
    path = shutil.which("wrk")
    if path is None:
        raise LoadError("wrk is not installed: apt-get install wrk (https://github.com/wg/wrk)")
    return path


def run(server: Server, work: str, bodies: Path, connections: int, seconds: float, row: str = "") -> Point:
    """One run on fresh connections."""
    files = [str(file) for file in sorted((bodies / work).glob("*.json"))]
    command = [find_wrk(), "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "30s"]
    before, client = moment(server.pid), _client()
    command += ["-s", str(SCRIPT), f"{server.url}/predict", "--", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    client, after = _client() - client, moment(server.pid)
    counts = parse(done.stdout)
    if counts is None:
        raise LoadError(f"wrk: {(done.stderr or done.stdout).strip()[-300:]}")
    cpu, held = after.tree_cpu - before.tree_cpu, memory(server.pid)
    return Point(
        row=row,
        server=server.name,
        work=work,
        connections=connections,
        per_second=(counts.requests - counts.not_200) / counts.seconds,
        p50_ms=counts.p50_ms,
        p99_ms=counts.p99_ms,
        errors=counts.not_200 + counts.socket + counts.timeout,
        cpu_ms=1000 * cpu / max(1, counts.requests),
        pss_mb=held.pss_mb,
        rss_mb=held.rss_mb,
        client_cpu_s=client,
        other_cpu_s=max(0.0, after.busy - before.busy - cpu - client),
        stolen_s=after.stolen - before.stolen,
    )


def parse(output: str) -> Counts | None:
    """The counts in wrk's output, None where rotate.lua printed none."""
    found = [line.removeprefix("RESULT ") for line in output.splitlines() if line.startswith("RESULT ")]
    return Counts(**json.loads(found[-1])) if found else None


def _client() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
