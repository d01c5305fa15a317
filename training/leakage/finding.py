"""One sign of a leak: what was seen, in which column, how sure, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

LEAK, NOTE = "leak", "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """`level` is LEAK where offline figures cannot be believed (--strict refuses), NOTE where they need care."""

    level: str
    check: str
    column: str  # "" where the rows as a whole are meant
    evidence: str
    advice: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def table(findings: Sequence[Finding]) -> list[str]:
    """Lines of a plain table, leaks first."""
    if not findings:
        return []
    rows = [(f.level, f.check, f.column or "(rows)", f.evidence) for f in findings]
    widths = [max(len(row[n]) for row in [("level", "check", "column", ""), *rows]) for n in range(3)]
    lines: list[str] = []
    advices = ["", *(finding.advice for finding in findings)]
    for row, advice in zip([("level", "check", "column", "evidence"), *rows], advices, strict=True):
        lines.append("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]))
        if advice:
            lines.append(" " * (sum(widths) + 6) + "→ " + advice)
    return lines
