"""One scrape: the workers' files added up, and what only the stored document knows."""

from __future__ import annotations

import glob
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from service.metrics.cells import PREFIX
from service.metrics.series import EXPERIMENT, EXPERIMENT_SRM
from service.release import installed

Report = Mapping[str, Any]


class Document(Protocol):
    """What a scrape reads of the stored traffic document."""

    @property
    def epoch(self) -> int: ...
    @property
    def weights(self) -> Mapping[str, float]: ...


class Scrape(Collector):
    """Collects the files of `folder`, adds weight and epoch of `document` and the figures of `report`, that of the
    running experiment; `versions` are given a weight of 0 too."""

    def __init__(
        self, folder: Path, document: Document | None, versions: Iterable[str], report: Report | None = None
    ) -> None:
        self._folder, self._document, self._versions, self._report = folder, document, versions, report

    def collect(self) -> Iterable[Metric]:
        files = sorted(glob.glob(os.path.join(self._folder, "*.db")))
        metrics = {metric.name: metric for metric in MultiProcessCollector.merge(files)}
        self._judge_readiness(metrics)
        yield from (metrics[name] for name in sorted(metrics))
        yield _build_info()
        if self._document is not None:
            yield GaugeMetricFamily(f"{PREFIX}epoch", "Epoch of the stored split", value=self._document.epoch)
            yield self._weights(self._document.weights)
        if self._report is not None:
            yield from _experiment(self._report)

    def _judge_readiness(self, metrics: Mapping[str, Metric]) -> None:
        """The files add up to the number of workers where all are ready; one that never loaded it has not even a 0."""
        ready, workers = metrics.get(f"{PREFIX}model_ready"), metrics.get(f"{PREFIX}workers")
        if ready is not None and workers is not None:
            live = workers.samples[0].value
            ready.samples = [Sample(one.name, one.labels, float(one.value >= live)) for one in ready.samples]

    def _weights(self, weights: Mapping[str, float]) -> Metric:
        family = GaugeMetricFamily(f"{PREFIX}weight", "Weight in the stored split", labels=["version"])
        for version in sorted({*weights, *self._versions}):
            family.add_metric([version], weights.get(version, 0.0))
        return family


def _build_info() -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}build_info", "Always 1", labels=["version", "torch", "python"])
    family.add_metric([installed("twinrank"), installed("torch"), platform.python_version()], 1.0)
    return family


def _experiment(report: Report) -> Iterable[Metric]:
    """What is not known yet has no sample: a NaN would be in the way of every aggregation."""
    for name, field, place, about in EXPERIMENT:
        family = GaugeMetricFamily(f"{PREFIX}{name}", about, labels=["version"])
        for one in report["versions"]:
            value = one[field] if place is None or one[field] is None else one[field][place]
            if value is not None:
                family.add_metric([one["version"]], value)
        yield family
    yield GaugeMetricFamily(f"{PREFIX}{EXPERIMENT_SRM[0]}", EXPERIMENT_SRM[1], value=report["srm"]["p"])


def exposition(
    folder: Path, document: Document | None, versions: Iterable[str], accept: str, report: Report | None = None
) -> tuple[bytes, str]:
    """(body, content type), in Prometheus text or OpenMetrics as the Accept header asks."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Scrape(folder, document, versions, report))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
