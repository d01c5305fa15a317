"""Whether a worker should be given requests."""

from __future__ import annotations

from service.config import Settings
from service.registry import Loaded, Registry
from service.state import Document

WEDGED_SECONDS = 5.0


def unready(document: Document, registry: Registry, settings: Settings) -> str | None:
    """Why this worker should get no requests; None where every version that may be asked for answers."""
    if not document.weights:
        return "no version has weight"
    states = registry.states()
    for version in sorted(document.needed):
        state, error = states.get(version, ("available", None))
        if state != "ready":
            return f"version '{version}' is {state}" + (f": {error}" if error else "")
    for version in sorted(states):
        loaded = registry.get(version)
        if loaded is not None and (reason := wedged(loaded, settings)):
            return reason
    return None


def wedged(loaded: Loaded, settings: Settings) -> str | None:
    """Why a version that is ready answers nobody; None where it works."""
    # A batch that outlasts every deadline is one whose callers have all been told 504.
    limit = max(1.0, settings.timeout_ms / 1000) if settings.timeout_ms else WEDGED_SECONDS
    busy = loaded.batcher.busy_seconds
    return f"version '{loaded.version}' has worked on one batch for {busy:.0f} s" if busy > limit else None
