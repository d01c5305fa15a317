"""When requests arrive in an open loop, and what became of them. Pure arithmetic on arrays; times in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Phase = tuple[float, float]  # arrivals a second, seconds


def arrivals(phases: Sequence[Phase], *, poisson: bool = True, seed: int = 0) -> Floats:
    """Due times from 0 on, ascending: independent arrivals (exponential gaps), or evenly spaced ones."""
    draw = np.random.default_rng(seed)
    start = 0.0
    parts: list[Floats] = []
    for rate, seconds in phases:
        count = round(rate * seconds)
        if poisson:
            # Given their number, the arrivals of a Poisson process are uniform in the phase: the rate is met exactly.
            parts.append(np.sort(draw.uniform(start, start + seconds, count)))
        else:
            parts.append(start + (np.arange(count) + 0.5) / rate)
        start += seconds
    return np.concatenate(parts) if parts else np.empty(0)


def quantile(values: Floats, share: float) -> float:
    """Nearest rank: a value that was measured; nan of nothing."""
    if not len(values):
        return float("nan")
    return float(np.sort(values)[max(0, int(np.ceil(share * len(values))) - 1)])


@dataclass(frozen=True, slots=True)
class Fates:
    """What became of requests, in the order they were due: seen by the client, sent once a connection was free, done.

    `status` is 0 where there was no answer.

    A latency counts from the time a request was due, not from when the client came to send it: a server that stops
    for a second is late for all that were due in that second (no coordinated omission).
    """

    due: Floats
    seen: Floats
    sent: Floats
    done: Floats
    status: npt.NDArray[np.int64]

    def between(self, start: float, end: float) -> Fates:
        """Those due in [start, end)."""
        chosen = (self.due >= start) & (self.due < end)
        return Fates(*(getattr(self, one.name)[chosen] for one in fields(self)))

    def latencies(self, *statuses: int) -> Floats:
        """Seconds from due to done of those answered with one of the statuses (none given: 200)."""
        chosen = np.isin(self.status, statuses or (200,))
        return self.done[chosen] - self.due[chosen]

    @property
    def unanswered(self) -> int:
        return int((self.status == 0).sum())

    def summary(self, seconds: float) -> dict[str, float]:
        """Rates a second over `seconds`, latencies in ms; refused are 429 and 503."""
        accepted, refused = self.latencies(200), self.latencies(429, 503)
        found = {
            "offered_per_second": len(self.due) / seconds,
            "accepted_per_second": len(accepted) / seconds,
            "refused_per_second": len(refused) / seconds,
            "unanswered": float(self.unanswered),
            "other_statuses": float(len(self.due) - len(accepted) - len(refused) - self.unanswered),
            "client_late_p99_ms": 1000 * quantile(self.seen - self.due, 0.99),
            "no_connection_p99_ms": 1000 * quantile(self.sent - self.seen, 0.99),
        }
        for name, values in (("accepted", accepted), ("refused", refused)):
            for label, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
                found[f"{name}_{label}_ms"] = 1000 * quantile(values, share)
        return found

    def unsettled(self, after: float, budget: float) -> float:
        """Seconds from `after` until the last arrival that was not answered 200 within `budget` seconds; 0 if none."""
        later = self.due >= after
        bad = later & ((self.status != 200) | (self.done - self.due > budget))
        return float(self.due[bad].max() - after) if bad.any() else 0.0
