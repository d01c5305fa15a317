"""Makes this worker's registry match the set of versions that the document wants loaded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from service.registry import LoadError, Registry
from service.state import Document, VersionState


class Reconciler:
    """Starts loads and unloads in the background, and remembers which wish each version's state answers.

    `changed()` is called whenever a state has changed.
    """

    def __init__(self, registry: Registry, changed: Callable[[], None]) -> None:
        self._registry, self._changed = registry, changed
        self._asked: dict[str, int] = {}
        self._held: Counter[str] = Counter()  # versions that a request is loading: not to be unloaded meanwhile
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def states(self) -> dict[str, VersionState]:
        """Every version that was touched here, as the other workers are told of it."""
        told = self._registry.states().items()
        return {version: VersionState(state, error, self._asked.get(version, 0)) for version, (state, error) in told}

    @contextmanager
    def holding(self, version: str, document: Callable[[], Document]) -> Iterator[None]:
        """Inside, a version may be loaded here that the document does not want yet."""
        self._held[version] += 1
        try:
            yield
        finally:
            self._held[version] -= 1
            self._asked[version] = document().loaded.get(version, document().revision)
            self._changed()

    def look(self, document: Document) -> None:
        """Start what is missing for the registry to match."""
        states = self._registry.states()
        for version, asked in document.loaded.items():
            state = states.get(version, ("available",))[0]
            if state == "ready":
                self._asked[version] = asked
            elif state == "available" or (state == "failed" and self._asked.get(version, 0) < asked):
                self._begin(version, self._load(version, asked))
        for version, (state, _) in states.items():
            if version in document.loaded or self._held[version]:
                continue
            if state == "ready":
                self._begin(version, self._registry.unload(version))
            elif state == "failed" and self._asked.get(version, 0) < document.revision:
                # Why it failed was told for as long as nothing else happened.
                self._registry.forget(version)

    def settled(self, document: Document) -> bool:
        """Whether every version that the document wants has been loaded here, or failed to."""
        states = self._registry.states()
        return all(states.get(version, ("",))[0] in ("ready", "failed") for version in document.loaded)

    def retry(self) -> None:
        """Let what failed be tried again."""
        for version, (state, _) in self._registry.states().items():
            if state == "failed":
                self._registry.forget(version)

    def _begin(self, version: str, work: Coroutine[Any, Any, None]) -> None:
        if version in self._tasks:
            work.close()
            return
        task = self._tasks[version] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._end(version))

    def _end(self, version: str) -> None:
        del self._tasks[version]
        self._changed()

    async def _load(self, version: str, asked: int) -> None:
        self._asked[version] = asked
        self._changed()
        with suppress(LoadError):  # the registry has logged it and keeps the reason
            await self._registry.load(version)
