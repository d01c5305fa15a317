"""Reports on demand: from whoever keeps the evidence to whoever asks, off the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from service.experiments.evidence import Evidence
from service.experiments.report import Json, report
from service.experiments.settings import ReportSettings

# A scrape is content with figures of that age.
RECENT_SECONDS = 5.0
Beside = Callable[[Evidence], Awaitable[Json | None]]


class EvidenceSource(Protocol):
    """Who keeps the counts."""

    async def evidence(self, name: str) -> Evidence | None:
        """All that was counted of an experiment; None where there was none of that name."""

    async def names(self) -> list[str]:
        """Every experiment that there was."""


async def nothing(_: Evidence) -> None:
    """Where no shadow and no plan are known."""


class Reports:
    """Used from one event loop. `shadow(evidence)` and `plan(evidence)` give those two parts of the report; `clock()`
    gives seconds from any start."""

    def __init__(
        self,
        source: EvidenceSource,
        settings: ReportSettings,
        *,
        shadow: Beside = nothing,
        plan: Beside = nothing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source, self._settings = source, settings
        self._shadow, self._plan, self._clock = shadow, plan, clock
        self._recent: tuple[str, float, Json | None] | None = None
        self._making = asyncio.Lock()

    async def report(self, name: str) -> Json | None:
        """The report of this moment; None where there is no such experiment."""
        evidence = await self.source.evidence(name)
        if evidence is None:
            return None
        shadow, plan = await self._shadow(evidence), await self._plan(evidence)
        return await asyncio.to_thread(report, evidence, settings=self._settings, shadow=shadow, plan=plan)

    async def recent(self, name: str, within: float = RECENT_SECONDS) -> Json | None:
        """The same, but not made anew `within` so many seconds, and by one caller at a time."""
        async with self._making:
            if self._recent is None or self._recent[0] != name or self._clock() - self._recent[1] >= within:
                self._recent = (name, self._clock(), await self.report(name))
            return self._recent[2]
