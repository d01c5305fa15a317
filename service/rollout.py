"""What is done on one worker and must be so on all: loads, unloads, switches of weights and of catalogs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from service import changes
from service.changes import Conflict
from service.control import BEAT_SECONDS, POLL_SECONDS, Control
from service.registry import LoadError, Registry
from service.state import VersionState, Worker

ACKNOWLEDGE_SECONDS = 2.0
LOAD_SECONDS = 600.0


async def want(control: Control, version: str) -> None:
    """Store the wish to have a version loaded; every worker loads it in its own time, this one too."""
    control.apply((await control.change(lambda change: changes.ask(change, version)))[0])


async def load(control: Control, registry: Registry, version: str) -> None:
    """Load here first, then in every worker of every replica; LoadError where it fails in any: then it is not wanted.

    Conflict where somebody unloads it meanwhile, or some worker takes forever.
    """
    with control.holding(version):
        # Shielded: a caller that leaves does not stop half of a load.
        await asyncio.shield(registry.load(version, control.document.catalog(version)))
        document, new = await control.change(lambda change: changes.ask(change, version))
        control.apply(document)
    asked = document.loaded[version]
    try:
        await _everywhere(control, version, asked)
    except LoadError:
        if new:
            control.apply(await control.change(lambda change: changes.unask(change, version, asked)))
        raise


async def switch_catalog(control: Control, registry: Registry, version: str, revision: int) -> None:
    """Switch here first, then in every worker of every replica; LoadError where it fails in any: then all go back.

    Conflict where the version is not ready everywhere, is unloaded or switched again meanwhile.
    """
    await control.read(lambda view: changes.check_switchable(view, version))
    with control.holding(version):
        await asyncio.shield(registry.switch_catalog(version, revision))
        document, before = await control.change(lambda change: changes.switch_catalog(change, version, revision))
        control.apply(document)
    asked = document.loaded[version]
    try:
        await _everywhere(control, version, asked, revision)
    except LoadError:
        if before is not None:
            back = before
            control.apply(await control.change(lambda change: changes.unswitch_catalog(change, version, asked, back)))
        raise


async def unload(control: Control, version: str, known: Collection[str], seconds: float) -> bool:
    """Drain and unload in every worker. False where that took longer than `seconds`; raises as `changes.unload`,
    and Conflict where somebody loads it again meanwhile."""
    control.apply(await control.change(lambda change: changes.unload(change, version, known)))
    ends = time.monotonic() + seconds + 2 * BEAT_SECONDS
    while any(version in worker.states for worker in await _accepting(control)):
        if version in control.document.loaded:
            raise Conflict(f"version '{version}' was asked for again meanwhile")
        if time.monotonic() > ends:
            return False
        await asyncio.sleep(POLL_SECONDS / 2)
    return True


async def acknowledged(control: Control, epoch: int) -> None:
    """Return when every worker that takes connections has the epoch, after two seconds at the latest."""
    ends = time.monotonic() + ACKNOWLEDGE_SECONDS
    while time.monotonic() < ends and any(worker.epoch < epoch for worker in await _accepting(control)):  # noqa: ASYNC110 - other processes
        await asyncio.sleep(POLL_SECONDS / 4)


async def _everywhere(control: Control, version: str, asked: int, catalog: int | None = None) -> None:
    """Return when every worker has answered the wish: with the version ready, and at `catalog` where one is given."""
    begun = time.monotonic()
    while time.monotonic() - begun < LOAD_SECONDS:
        told = [(worker, _state(worker, version, asked)) for worker in await _accepting(control)]
        for worker, found in told:
            if found.state == "failed" or (catalog is not None and found.refuses(catalog)):
                raise LoadError(f"{found.error} (in worker {worker.worker} of {worker.replica})")
        if all(found.state == "ready" and catalog in (None, found.catalog) for _, found in told):
            return
        if control.document.loaded.get(version) != asked:
            raise Conflict(f"version '{version}' was unloaded, or asked for anew, meanwhile")
        await asyncio.sleep(POLL_SECONDS / 2)
    raise Conflict(f"version '{version}' is not ready in every worker after {LOAD_SECONDS:.0f} s; it goes on loading")


def _state(worker: Worker, version: str, asked: int) -> VersionState:
    """The worker's answer to this wish; what it told of an earlier one does not count."""
    found = worker.states.get(version)
    return found if found is not None and found.asked >= asked else VersionState("loading")


async def _accepting(control: Control) -> list[Worker]:
    return [worker for worker in await control.workers() if worker.accepting]
