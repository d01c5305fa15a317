"""What a shadow costs those who are answered: open loop, with and without one in turns on the same service."""

from __future__ import annotations

import json
import statistics

from benchmark.check import Check, Facts
from benchmark.latency import RANKING, SETTLE, arrive, capacity, told
from benchmark.servers import Server, ServerError
from benchmark.session import Session

FRACTION = 0.1


def shadow(session: Session) -> list[Check]:
    """Half of the capacity arrives, and a tenth of it is scored by a second version too."""
    rate = capacity(session) / 2
    session.work.publish("v2")
    server = session.server_unchecked("service")
    _ask(server, "/models/v2", None)
    session.warm(["service"], RANKING)
    found: dict[bool, list[Facts]] = {False: [], True: []}
    for repeat in range(session.plan.repeats):
        for shadowed, summaries in found.items():
            wanted = {"version": "v2", "fraction": FRACTION} if shadowed else None
            _ask(server, "/models/weights", {"weights": {"v1": 1}, "shadow": wanted})
            fates = arrive(session, server, [(rate, SETTLE + session.plan.open_seconds)], seed=repeat)
            what = f"half load, shadow {FRACTION if shadowed else 0:.0%}"
            summaries.append(told(session, what, fates, SETTLE, session.plan.open_seconds))
    _ask(server, "/models/weights", {"weights": {"v1": 1}, "shadow": None})
    without, with_shadow = (
        statistics.median(float(str(one["accepted_p99_ms"])) for one in found[shadowed]) for shadowed in (False, True)
    )
    facts: Facts = {"requests/s": rate, "p99 ms without": without, "p99 ms with": with_shadow, **_results(server)}
    about = f"p99 with {FRACTION:.0%} shadowed to p99 without"
    return [Check("shadow", about, with_shadow / without, 1.2, at_most=True, facts=facts)]


def _ask(server: Server, path: str, body: object) -> None:
    status, answer = server.ask("PUT", path, b"" if body is None else json.dumps(body).encode())
    if status != 200:
        raise ServerError(f"PUT {path}: {status} {answer[:200].decode(errors='replace')}")


def _results(server: Server) -> Facts:
    """How many requests the shadow scored, dropped and failed at."""
    text = server.ask("GET", "/metrics")[1].decode()
    lines = [line for line in text.splitlines() if line.startswith("twinrank_shadow_total") and '"v2"' in line]
    return {f"shadow {line.split('result=')[1].split(chr(34))[1]}": float(line.rsplit(" ", 1)[1]) for line in lines}
