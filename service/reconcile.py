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
        self._refused: dict[str, tuple[int, str]] = {}  # which wish for a catalog revision failed here, and why
        self._held: Counter[str] = Counter()  # versions that a request is loading: not to be unloaded meanwhile
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def states(self) -> dict[str, VersionState]:
        """Every version that was touched here, as the other workers are told of it."""
        return {version: self._state(version, *told) for version, told in self._registry.states().items()}

    @contextmanager
    def holding(self, version: str, document: Callable[[], Document]) -> Iterator[None]:
        """Inside, a version may be loaded here that the document does not want yet."""
        self._held[version] += 1
        try:
            yield
        finally:
            self._held[version] -= 1
            wanted = document()
            if self._registry.get(version) is None or self._registry.catalog(version) == wanted.catalog(version):
                self._asked[version] = wanted.loaded.get(version, wanted.revision)
            self._changed()

    def look(self, document: Document) -> None:
        """Start what is missing for the registry to match."""
        states = self._registry.states()
        for version, asked in document.loaded.items():
            state = states.get(version, ("available",))[0]
            if state == "ready":
                self._look_at_catalog(version, document.catalog(version), asked)
            elif state == "available" or (state == "failed" and self._asked.get(version, 0) < asked):
                self._begin(version, self._load(version, document.catalog(version), asked))
        for version, (state, _) in states.items():
            if version in document.loaded or self._held[version]:
                continue
            if state == "ready":
                self._begin(version, self._registry.unload(version))
            elif state == "failed" and self._asked.get(version, 0) < document.revision:
                # Why it failed was told for as long as nothing else happened.
                self._registry.forget(version)

    def settled(self, document: Document) -> bool:
        """Whether every version that the document wants has been loaded here as it wants it, or failed to be."""
        states = self._registry.states()
        return all(
            states.get(version, ("",))[0] in ("ready", "failed") and self._asked.get(version, 0) >= asked
            for version, asked in document.loaded.items()
        )

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

    def _state(self, version: str, state: str, error: str | None) -> VersionState:
        refused = self._refused.get(version, (0, None))[1] if state == "ready" else None
        return VersionState(state, error or refused, self._asked.get(version, 0), self._registry.catalog(version))

    def _look_at_catalog(self, version: str, revision: int, asked: int) -> None:
        if self._registry.catalog(version) == revision:
            self._asked[version] = asked
            self._refused.pop(version, None)
        elif not self._held[version] and self._refused.get(version, (0, ""))[0] != asked:
            self._begin(version, self._switch(version, revision, asked))

    async def _load(self, version: str, revision: int, asked: int) -> None:
        self._asked[version] = asked
        self._refused.pop(version, None)
        self._changed()
        with suppress(LoadError):  # the registry has logged it and keeps the reason
            await self._registry.load(version, revision)

    async def _switch(self, version: str, revision: int, asked: int) -> None:
        try:
            await self._registry.switch_catalog(version, revision)
        except LoadError as error:
            if self._registry.get(version) is not None:
                self._refused[version] = (asked, str(error))
                self._asked[version] = asked
