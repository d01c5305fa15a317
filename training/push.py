"""The final figures of a fit, sent to a Prometheus Pushgateway."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.error import URLError

from training.errors import PushFault

NAMES = ("auc", "logloss", "gauc", "ne", "calibration", "ece", "rows", "positives")
PREFIX = "twinrank_training_"
SECONDS = 10  # that a gateway may take


def push_metrics(folder: Path, url: str) -> None:
    """Send the metrics of the version in `folder`, grouped by its name; raises PushFault, the version stays."""
    try:
        from prometheus_client import CollectorRegistry, Gauge, push_to_gateway
    except ModuleNotFoundError:
        raise PushFault("--push-metrics needs prometheus-client: pip install prometheus-client") from None
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    registry = CollectorRegistry()
    for name in NAMES:
        gauge = Gauge(f"{PREFIX}{name}", f"Offline {name} of a published version", ["part"], registry=registry)
        for part, found in manifest["metrics"].items():
            if found[name] is not None:
                gauge.labels(part).set(found[name])
    epochs = Gauge(f"{PREFIX}epochs", "Epochs that were trained", registry=registry)
    epochs.set(len(manifest["epochs"]))
    speed = Gauge(f"{PREFIX}rows_per_second", "Training rows a second, the median epoch's", registry=registry)
    speeds = sorted(epoch["rows_per_second"] for epoch in manifest["epochs"])
    speed.set(speeds[len(speeds) // 2])
    leaks = Gauge(f"{PREFIX}leaks", "Leaks that the leakage report names", registry=registry)
    leaks.set(sum(finding["level"] == "leak" for finding in manifest["leakage"]["findings"]))
    try:
        push_to_gateway(url, "twinrank", registry, {"version": manifest["version"]}, timeout=SECONDS)
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise PushFault(f"{folder} is published, but its metrics could not be pushed to {url}: {reason}") from None
