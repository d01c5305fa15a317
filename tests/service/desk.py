"""The prediction endpoint at a desk: real parsing, encoding, queues and metrics; a hand-made engine, no sockets."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from prometheus_client.parser import text_string_to_metric_families

from service.api.predict import Predict
from service.batching import Batcher, Load
from service.config import Settings
from service.experiments.ledger import Ledger
from service.metrics import Metrics
from service.registry import Loaded
from service.scorer import Scorer, row_count
from service.scoring.catalog import Catalog
from service.scoring.encoded import Encoded, Floats
from service.scoring.features import FeatureEncoder
from service.scoring.known import KnownNames
from service.scoring.predictor import Predictor
from service.state import Document, StateStore
from tests.tiny import ITEMS, tiny_encoder

PRICE = 1  # the column of the tiny schema's price, scaled so that 0..19 is 0..1
Score = Callable[[Encoded], Floats]


def by_price(encoded: Encoded) -> Floats:
    """A tenth, and what the price adds."""
    return np.asarray(0.1 + 0.8 * encoded.numerics[:, PRICE], np.float32)


class Engine:
    """Stands for a module: a function of the encoded rows, which can be made to wait."""

    device = "cpu"
    has_halves = False

    def __init__(self, score: Score) -> None:
        self.score = score
        self.calls: list[int] = []
        self.open = threading.Event()
        self.open.set()

    def forward(self, encoded: Encoded) -> Floats:
        self.calls.append(encoded.rows)
        assert self.open.wait(10), "the gate was never opened"
        return self.score(encoded)


@cache
def encoder() -> FeatureEncoder:
    return tiny_encoder()


@cache
def encoder_without_items() -> FeatureEncoder:
    return tiny_encoder(item=None)


@cache
def catalog() -> Catalog:
    return Catalog.encode(pa.Table.from_pylist([dict(item) for item in ITEMS]), encoder())


@dataclass
class Versions:
    """What a registry tells: the versions that are ready, the states of others, the names that are known."""

    known: KnownNames
    ready: dict[str, Loaded] = field(default_factory=dict)
    workload: Load = field(default_factory=Load)
    others: dict[str, tuple[str, str | None]] = field(default_factory=dict)

    def get(self, version: str) -> Loaded | None:
        return self.ready.get(version)

    def states(self) -> Mapping[str, tuple[str, str | None]]:
        return {**dict.fromkeys(self.ready, ("ready", None)), **self.others}


@dataclass
class View:
    """What the control plane tells."""

    document: Document
    draining: bool = False

    @property
    def split(self):
        return self.document.split()


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        # Strict: Python's reader would take NaN.
        return orjson.loads(self.body)

    @property
    def faults(self) -> dict[tuple[Any, ...], str]:
        """The types of a 422's faults by their place."""
        return {tuple(fault["loc"]): fault["type"] for fault in self.json()["detail"]}


@dataclass
class Desk:
    endpoint: Predict
    versions: Versions
    view: View
    metrics: Metrics
    engines: dict[str, Engine]
    ledger: Ledger

    async def post(self, body: object, headers: Mapping[str, str] | None = None) -> Answer:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await post(self.endpoint, [raw], headers or {})

    def counts(self) -> dict[str, float]:
        """The samples that are not 0, as `name label label`."""
        text = self.metrics.render(None)[0].decode()
        return {
            " ".join([sample.name.removeprefix("twinrank_"), *(sample.labels[key] for key in sorted(sample.labels))]): (
                sample.value
            )
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.value
        }


async def post(
    endpoint: Any,
    chunks: Sequence[bytes],
    headers: Mapping[str, str],
    *,
    gone: asyncio.Event | None = None,
    scope: Mapping[str, Any] | None = None,
) -> Answer:
    """One call as a server makes it: the body in chunks, then nothing until the client is `gone`."""
    messages = [
        {"type": "http.request", "body": chunk, "more_body": n < len(chunks) - 1} for n, chunk in enumerate(chunks)
    ]
    waiting = iter(messages)
    sent: list[Any] = []

    async def receive() -> Any:
        message = next(waiting, None)
        if message is None:
            await (gone or asyncio.Event()).wait()
            return {"type": "http.disconnect"}
        return message

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.lower().encode(), value.encode("utf-8")) for name, value in headers.items()]
    http = {"type": "http", "method": "POST", "path": "/predict", "headers": raw, **(scope or {})}
    await endpoint(http, receive, send)
    if not sent:
        return Answer(0, {}, b"")
    named = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    assert named["content-length"] == str(len(sent[1]["body"]))
    return Answer(sent[0]["status"], named, sent[1]["body"])


@asynccontextmanager
async def desk(
    *,
    scores: Mapping[str, Score] | None = None,
    weights: Mapping[str, float] | None = None,
    without_items: tuple[str, ...] = (),
    known: KnownNames | None = None,
    document: Mapping[str, Any] | None = None,
    batch_rows: int = 4096,
    body_seconds: float = 5.0,
    **settings: Any,
) -> AsyncIterator[Desk]:
    """A desk with a version for each of `scores` (v1 by price), split by `weights` (all to the first)."""
    scores = scores or {"v1": by_price}
    weights = weights or {next(iter(scores)): 1.0}
    config = Settings(**{"artifacts": Path(__file__).parent, "budget_ms": 60_000.0, **settings})
    versions = Versions(known or KnownNames.of([encoder().schema]), workload=Load(config.budget_ms / 1e3))
    default = {"epoch": 7, "revision": 9, "weights": dict(weights), "default": next(iter(weights))}
    view = View(Document(**{**default, **(document or {})}))
    engines = {version: Engine(score) for version, score in scores.items()}
    async with AsyncExitStack() as stack:
        metrics = stack.enter_context(Metrics())
        folder = stack.enter_context(TemporaryDirectory())
        store = stack.enter_context(StateStore.open(f"sqlite:///{folder}/state.db"))
        ledger = await stack.enter_async_context(Ledger(config, store))
        for version, engine in engines.items():
            items = version not in without_items
            predictor = Predictor(
                version, encoder() if items else encoder_without_items(), engine, catalog() if items else None
            )
            metrics.version_loaded(version, [feature.name for feature in predictor.schema.features])
            batcher = _batcher(predictor, versions, metrics, config, batch_rows)
            versions.ready[version] = Loaded(version, predictor, batcher)
        async with Predict(config, versions, view, metrics, ledger, body_seconds=body_seconds) as endpoint:
            yield Desk(endpoint, versions, view, metrics, engines, ledger)
            for engine in engines.values():
                engine.open.set()
            for loaded in versions.ready.values():
                await loaded.batcher.close(seconds=5)


def _batcher(
    predictor: Predictor, versions: Versions, metrics: Metrics, settings: Settings, batch_rows: int
) -> Batcher[Any, Any]:
    ignore = settings.unknown_features == "ignore"
    return Batcher(
        Scorer(
            predictor,
            lambda: versions.known,
            ignore_unknown=ignore,
            count=lambda n: metrics.counted(predictor.version, n),
        ),
        rows=row_count,
        max_batch_rows=batch_rows,
        max_queue_rows=settings.queue_rows,
        load=versions.workload,
        on_batch=lambda *batch: metrics.batch(predictor.version, *batch),
        on_queue=lambda rows: metrics.queue_rows(predictor.version, rows),
    )


def ask(body: object, headers: Mapping[str, str] | None = None, **options: Any) -> Answer:
    """One request to a desk of its own."""

    async def main() -> Answer:
        async with desk(**options) as here:
            return await here.post(body, headers)

    return asyncio.run(main())
