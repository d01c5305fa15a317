"""The load test's own counts. Each request is counted once, right or failed; the failed are so many of all of them.

Latencies of failures stand apart: a refusal takes no time, and averaged in it would flatter the rest.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from typing import Any


def percentile(sorted_ms: Sequence[float], share: float) -> float | None:
    """Nearest rank, in milliseconds; None of nothing."""
    if not sorted_ms:
        return None
    return round(sorted_ms[max(0, math.ceil(share * len(sorted_ms)) - 1)], 2)


class Tally:
    def __init__(self) -> None:
        self.right_ms: dict[str, list[float]] = defaultdict(list)
        self.failed_ms: dict[str, list[float]] = defaultdict(list)
        self.reasons: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, milliseconds: float, reason: str | None) -> None:
        if reason is None:
            self.right_ms[name].append(milliseconds)
        else:
            self.failed_ms[name].append(milliseconds)
            self.reasons[name, reason] += 1

    @property
    def failed(self) -> int:
        return sum(map(len, self.failed_ms.values()))

    @property
    def requests(self) -> int:
        return self.failed + sum(map(len, self.right_ms.values()))

    @property
    def failed_percent(self) -> float:
        return 100 * self.failed / self.requests if self.requests else 0.0

    def report(
        self, *, seconds: float, offered_per_second: float | None, beside: Set[str] = frozenset()
    ) -> dict[str, Any]:
        """The whole result as JSON values; `offered_per_second` is None where users send once they are answered.

        The rates leave out the requests named in `beside`, which are not part of what is offered.
        """
        names = sorted(self.right_ms.keys() | self.failed_ms.keys())
        right, failed = (
            sum(len(ms) for name, ms in side.items() if name not in beside) for side in (self.right_ms, self.failed_ms)
        )
        return {
            "requests": self.requests,
            "failed": self.failed,
            "failed_percent": round(self.failed_percent, 3),
            "seconds": round(seconds, 2),
            "offered_per_second": offered_per_second,
            "achieved_per_second": round((right + failed) / seconds, 1),
            "right_per_second": round(right / seconds, 1),
            "reasons": {f"{name}: {reason}": count for (name, reason), count in sorted(self.reasons.items())},
            "by_name": {name: self._of(name) for name in names},
        }

    def _of(self, name: str) -> dict[str, Any]:
        return {"right": _latencies(self.right_ms[name]), "failed": _latencies(self.failed_ms[name])}


def _latencies(milliseconds: list[float]) -> dict[str, Any]:
    ms = sorted(milliseconds)
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
    return {"count": len(ms), **{name: percentile(ms, share) for name, share in shares.items()}}


def text(report: dict[str, Any]) -> str:
    """The report for people: one line a kind of request."""
    offered = report["offered_per_second"]
    lines = [
        f"{report['requests']} requests in {report['seconds']} s, "
        f"{report['failed']} failed: {report['failed_percent']:.1f} %",
        f"offered {f'{offered}/s' if offered is not None else 'as fast as answered'}, "
        f"achieved {report['achieved_per_second']}/s, right {report['right_per_second']}/s",
    ]
    for name, kinds in report["by_name"].items():
        for kind, of in kinds.items():
            if of["count"]:
                lines.append(f"  {name:<14} {kind:<6} {of['count']:>7}   p50 {of['p50_ms']} ms   p99 {of['p99_ms']} ms")
    lines += [f"  {count} x {reason}" for reason, count in report["reasons"].items()]
    return "\n".join(lines)
