"""Measures the service on the machine at hand, as ratios to floors measured in turns in the same run.

    python loadtests/bench.py --work DIR [--only ROW …] [--quick] [--out results.json] [--markdown results.md]

DIR keeps the data and the trained versions between runs. Needs wrk and a C compiler (apt-get install wrk gcc) and
Linux; uses the Python it is run with. Takes about half an hour for all rows; nothing else should run meanwhile.
Progress goes to stderr, the table to stdout. Exits with 1 where it could not measure; a row that falls short is told,
not punished.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmark import capacity, latency, shadowing
from benchmark.arriving import compile_client
from benchmark.check import Check
from benchmark.closed import LoadError, find_wrk
from benchmark.report import markdown, report
from benchmark.servers import ServerError
from benchmark.session import Plan, Session, say
from benchmark.work import WorkError, prepare

# In this order: memory and swap want the machine to themselves.
ROWS: dict[str, Callable[[Session], list[Check]]] = {
    "memory": capacity.memory_held,
    "one_row": capacity.one_row,
    "rank_100": capacity.rank_100,
    "rank_500": capacity.rank_500,
    "rows_100": capacity.rows_100,
    "scaling": capacity.scaling,
    "connections": capacity.connections,
    "three_versions": capacity.three_versions,
    "latency": latency.latency,
    "shadow": shadowing.shadow,
    "overload": latency.overload,
    "swap": latency.swap,
}


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, help="folder of data and versions, kept (default: one in the temp folder)")
    parser.add_argument("--only", nargs="+", choices=list(ROWS), metavar="ROW", help=f"of {', '.join(ROWS)}")
    parser.add_argument(
        "--quick", action="store_true", help="one short run of each: shows that it works, measures little"
    )
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="default: one a core")
    parser.add_argument("--repeats", type=int, help="interleaved runs of each point (default: 3)")
    parser.add_argument("--seconds", type=int, help="of each point (default: 4)")
    parser.add_argument("--out", type=Path, help="everything measured, as JSON")
    parser.add_argument("--markdown", type=Path, help="the tables, as printed")
    return parser.parse_args(arguments)


def plan(given: argparse.Namespace) -> Plan:
    chosen = {"seconds": 1, "repeats": 1, "warm": 1, "swaps": 2, "cycles": 3, "open_seconds": 3} if given.quick else {}
    chosen |= {name: value for name in ("repeats", "seconds") if (value := getattr(given, name))}
    return Plan(workers=given.workers, **chosen)


def measure(given: argparse.Namespace) -> None:
    find_wrk()
    work = prepare((given.work or Path(tempfile.gettempdir()) / "twinrank-bench").resolve())
    client = compile_client(work.folder)
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        session = Session(work, client, plan(given), Path(folder), stack)
        try:
            for name, row in ROWS.items():
                if given.only is None or name in given.only:
                    say(f"== {name}")
                    session.row = name
                    checks += row(session)
        finally:  # what was measured before a failure is told too
            text = markdown(session, checks)
            if given.out:
                given.out.write_text(json.dumps(report(session, checks), indent=1), encoding="utf-8")
            if given.markdown:
                given.markdown.write_text(text, encoding="utf-8")
            print(text, end="")


def main() -> int:
    given = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is stopped on the way out
    try:
        measure(given)
    except (WorkError, LoadError, ServerError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
