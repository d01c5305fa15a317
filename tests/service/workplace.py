"""Whole workers in one process: real apps on one real store and real tiny versions, called without a socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from service.app import create_app
from service.config import Settings
from service.control import Seat
from service.opening import Opening
from service.start import fill
from service.state import StateStore


class Worker:
    """One worker and a client of it."""

    def __init__(self, client: httpx.AsyncClient, state: Mapping[str, Any]) -> None:
        self.client, self.state = client, state
        self.control, self.registry, self.metrics = state["control"], state["registry"], state["metrics"]

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.client.get(path, **more)

    async def put(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return await self.client.put(path, json=json, **more) if json is not None else await self.client.put(path)

    async def weights(self, weights: Mapping[str, float], query: str = "", headers: Any = None, **more: Any) -> Any:
        body = {"weights": weights, **more}
        return await self.client.put(f"/models/weights{query}", json=body, headers=headers)

    async def states(self) -> dict[str, str]:
        return {model["version"]: model["state"] for model in (await self.get("/models")).json()["models"]}

    async def predict(self, unit: str = "u1") -> httpx.Response:
        return await self.client.post("/predict", json={"instances": [{"age": 30}], "unit_id": unit})


@asynccontextmanager
async def worker(
    settings: Settings, seat: Seat | None = None, *, ready: bool = True, opening: Opening | None = None
) -> AsyncIterator[Worker]:
    """A worker that accepts connections, and is `ready`; leaving ends it."""
    if seat is not None and seat.replacement:
        # Whom it replaces has filled the store.
        with StateStore.open(settings.state) as store:
            fill(store, settings)
    app = create_app(settings, seat=seat, opening=opening)
    async with app.router.lifespan_context(app) as state:

        async def with_state(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": dict(state)}, receive, send)

        transport = httpx.ASGITransport(app=with_state, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            one = Worker(client, state)
            if ready:
                await until_ready(one)
            yield one


@asynccontextmanager
async def workers(settings: Settings, count: int) -> AsyncIterator[list[Worker]]:
    """Several workers of one replica."""
    async with AsyncExitStack() as stack:
        settings = replace(settings, workers=count)
        seats = [Seat("here", str(number)) for number in range(count)]
        team = [await stack.enter_async_context(worker(settings, seat, ready=False)) for seat in seats]
        for one in team:
            await until_ready(one)
        yield team


async def until_ready(one: Worker) -> None:
    """Ready is said once the versions with weight are; a test means the others that are to be loaded too."""
    ends = time.monotonic() + 30
    while (why := one.control.unready() or _to_load(one)) is not None:
        assert time.monotonic() < ends, why
        await asyncio.sleep(0.02)


def _to_load(one: Worker) -> str | None:
    states = one.registry.states()
    left = [name for name in one.control.document.loaded if states.get(name, ("",))[0] not in ("ready", "failed")]
    return f"{left} are not loaded yet" if left else None


def settings(artifacts: Path, state: Path | str, **more: Any) -> Settings:
    """Settings for tests; `state` is a file of SQLite, or a URL."""
    more = {"budget_ms": 60_000.0, **more}  # several tests share the cores: time is what but a few of them are about
    return Settings(artifacts=artifacts, state=state if isinstance(state, str) else f"sqlite:///{state}", **more)


def with_two_versions(check: Callable[..., Awaitable[None]]) -> Callable[[Path, str], None]:
    """A test of an async check on a worker where v1 has 90, v2 has 10 and v3 is on disk alone."""

    def run(artifacts: Path, state: str) -> None:
        async def main() -> None:
            config = settings(artifacts, state, weights={"v1": 90.0, "v2": 10.0}, load="none")
            async with worker(config) as one:
                await check(one)

        asyncio.run(main())

    run.__name__ = check.__name__
    return run


async def listing(one: Worker) -> bytes:
    """GET /models, byte for byte."""
    return (await one.get("/models")).content


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 30.0) -> None:
    """Poll until the condition holds."""
    ends = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < ends, "it never came to be"
        await asyncio.sleep(0.02)


def break_version(artifacts: Path, version: str) -> None:
    (artifacts / version / "model.pt").write_bytes(b"")
