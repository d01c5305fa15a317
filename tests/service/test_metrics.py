"""Metrics: two `Metrics` in one folder stand for two workers; scrapes are read with prometheus_client's own parsers."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from service.metrics import NONE, Metrics, forget_worker
from service.metrics.series import REASONS, SECONDS
from service.scorer import Counted

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@dataclass
class Document:
    epoch: int = 7
    weights: dict[str, float] = field(default_factory=lambda: {"v1": 90.0, "v2": 10.0})


@pytest.fixture(name="metrics")
def _metrics(tmp_path: Path) -> Iterator[Metrics]:
    metrics = Metrics(tmp_path)
    yield metrics
    metrics.close()


def samples(metrics: Metrics, document: Document | None = None) -> dict[str, float]:
    """Every sample of a scrape by its name and labels, as it would be written."""
    body, _ = metrics.render(document)
    return {
        f"{sample.name}{sorted(sample.labels.items()) if sample.labels else ''}": sample.value
        for family in parse_text(body.decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, document: Document | None = None, **labels: str) -> float:
    key = f"twinrank_{name}{sorted(labels.items()) if labels else ''}"
    found = samples(metrics, document)
    assert key in found, f"{key} is none of {sorted(found)}"
    return found[key]


def other_worker(folder: Path, script: str) -> subprocess.Popen[bytes]:
    """Another process that counts into `folder`, then waits to be killed."""
    text = (
        "import sys, time\nfrom pathlib import Path\nimport numpy as np\nfrom service.metrics import Metrics\n"
        f"metrics = Metrics(Path(sys.argv[1]))\n{script}\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", text, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_every_series_of_a_loaded_version_stands_at_zero(metrics: Metrics):
    metrics.version_loaded("v1", ["age", "genres"])
    found = samples(metrics, Document())
    for key in (
        "twinrank_requests_total[('code', '200'), ('version', 'v1')]",
        "twinrank_request_seconds_count[('version', 'v1')]",
        "twinrank_queue_seconds_sum[('version', 'v1')]",
        "twinrank_model_seconds_bucket[('le', '+Inf'), ('version', 'v1')]",
        "twinrank_rows_total[('version', 'v1')]",
        "twinrank_batch_rows_count[('version', 'v1')]",
        "twinrank_queue_rows[('version', 'v1')]",
        "twinrank_in_flight",
        "twinrank_rejected_total[('reason', 'queue_full')]",
        "twinrank_model_load_seconds[('version', 'v1')]",
        "twinrank_assignments_total[('reason', 'split'), ('version', 'v1')]",
        "twinrank_unknown_values_total[('feature', 'age'), ('version', 'v1')]",
        "twinrank_missing_values_total[('feature', 'genres'), ('version', 'v1')]",
        "twinrank_score_count[('version', 'v1')]",
        "twinrank_requests_total[('code', '400'), ('version', 'none')]",
    ):
        assert found[key] == 0, key
    assert found["twinrank_model_ready[('version', 'v1')]"] == 1


def test_what_no_version_answered_is_counted_under_none(metrics: Metrics):
    metrics.request(NONE, 400, 0.001)
    metrics.request("a name that a client made up", 404, 0.001)
    assert value(metrics, "requests_total", version="none", code="400") == 1
    assert value(metrics, "requests_total", version="none", code="404") == 1
    assert not [key for key in samples(metrics) if "made up" in key]


def test_me02_counts_of_a_histogram_agree_with_the_counter(metrics: Metrics):
    metrics.version_loaded("v1", [])
    for number in range(400):
        metrics.request("v1", 200, number / 1000)
    assert value(metrics, "requests_total", version="v1", code="200") == 400
    assert value(metrics, "request_seconds_count", version="v1") == 400
    assert value(metrics, "request_seconds_bucket", version="v1", le="+Inf") == 400
    assert value(metrics, "request_seconds_sum", version="v1") == pytest.approx(sum(range(400)) / 1000)


def test_me02_totals_are_summed_over_workers_and_outlive_a_killed_one(metrics: Metrics, tmp_path: Path):
    metrics.version_loaded("v1", [])
    metrics.request("v1", 200, 0.001)
    other = other_worker(
        tmp_path,
        "metrics.version_loaded('v1', [])\nfor _ in range(20): metrics.request('v1', 200, 0.001)\n"
        "metrics._worker.in_flight.inc(5)",
    )
    assert value(metrics, "requests_total", version="v1", code="200") == 21
    assert value(metrics, "in_flight") == 5
    assert value(metrics, "workers") == 2
    cpu = value(metrics, "cpu_seconds_total")
    resident = value(metrics, "resident_memory_bytes")
    kill(other)
    forget_worker(tmp_path, other.pid)
    assert value(metrics, "requests_total", version="v1", code="200") == 21
    assert value(metrics, "request_seconds_count", version="v1") == 21
    assert value(metrics, "cpu_seconds_total") >= cpu
    assert value(metrics, "resident_memory_bytes") < resident
    assert value(metrics, "in_flight") == 0
    assert value(metrics, "workers") == 1


def test_a_worker_with_a_dead_ones_number_goes_on_from_its_counts(tmp_path: Path):
    first = Metrics(tmp_path)
    first.request(NONE, 400, 0.001)
    first.close()
    second = Metrics(tmp_path)
    second.request(NONE, 400, 0.001)
    assert value(second, "requests_total", version="none", code="400") == 2
    second.close()


def test_a_version_is_ready_only_when_ready_in_every_live_worker(metrics: Metrics, tmp_path: Path):
    metrics.version_loaded("v1", [])
    assert value(metrics, "model_ready", version="v1") == 1
    starting = other_worker(tmp_path, "")
    assert value(metrics, "model_ready", version="v1") == 0
    kill(starting)
    forget_worker(tmp_path, starting.pid)
    assert value(metrics, "model_ready", version="v1") == 1
    metrics.version_unloaded("v1")
    assert value(metrics, "model_ready", version="v1") == 0


def test_me01_weight_and_epoch_come_from_the_stored_document_alone(metrics: Metrics, tmp_path: Path):
    metrics.version_loaded("v3", [])
    other = other_worker(tmp_path, "metrics.version_loaded('v1', [])")
    found = samples(metrics, Document(epoch=9, weights={"v1": 90, "v2": 10}))
    kill(other)
    assert {key: number for key, number in found.items() if "weight" in key or "epoch" in key} == {
        "twinrank_epoch": 9,
        "twinrank_weight[('version', 'v1')]": 90,
        "twinrank_weight[('version', 'v2')]": 10,
        "twinrank_weight[('version', 'v3')]": 0,
    }


def test_no_series_carries_a_process_id_or_a_creation_time(metrics: Metrics):
    metrics.version_loaded("v1", ["age"])
    for accept in ("", OPENMETRICS):
        body, _ = metrics.render(Document(), accept)
        assert b"pid" not in body
        assert b"_created" not in body


@pytest.mark.parametrize(
    ("accept", "start", "parse"),
    [
        ("", "text/plain; version=0.0.4", parse_text),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", "text/plain", parse_text),
        (OPENMETRICS + ",text/plain;q=0.5", "application/openmetrics-text; version=1.0.0", parse_openmetrics),
    ],
)
def test_me03_the_content_type_is_the_bodys(metrics: Metrics, accept: str, start: str, parse):
    metrics.version_loaded("v1", ["age"])
    metrics.request("v1", 200, 0.001)
    body, content_type = metrics.render(Document(), accept)
    assert content_type.startswith(start)
    names = {family.name for family in parse(body.decode())}
    assert {"twinrank_requests", "twinrank_request_seconds", "twinrank_weight", "twinrank_build_info"} <= names


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(0.0, "0.0001"), (0.0001, "0.0001"), (0.00011, "0.00025"), (0.012, "0.015"), (59.9, "60.0"), (61.0, "+Inf")],
)
def test_me04_a_latency_lands_in_the_bucket_of_its_seconds(metrics: Metrics, seconds: float, bucket: str):
    metrics.version_loaded("v1", [])
    metrics.request("v1", 200, seconds)
    found = samples(metrics)
    edges = [*map(str, map(float, SECONDS)), "+Inf"]
    counts = [found[f"twinrank_request_seconds_bucket[('le', '{edge}'), ('version', 'v1')]"] for edge in edges]
    assert counts == [float(edges.index(edge) >= edges.index(bucket)) for edge in edges]


def test_me04_latency_buckets_begin_below_a_millisecond():
    assert sum(bound < 0.001 for bound in SECONDS) >= 3
    assert max(SECONDS) >= 30


def test_a_batch_is_counted_once_and_its_requests_waits_each(metrics: Metrics):
    metrics.version_loaded("v1", [])
    metrics.batch("v1", 12, [0.001, 0.002, 0.003], 0.004)
    assert value(metrics, "batch_rows_count", version="v1") == 1
    assert value(metrics, "batch_rows_sum", version="v1") == 12
    assert value(metrics, "queue_seconds_count", version="v1") == 3
    assert value(metrics, "model_seconds_sum", version="v1") == pytest.approx(0.004)


def counted(scores: object = (), **counts: Any) -> Counted:
    return Counted(
        np.asarray(scores, np.float32), **{"unknown": {}, "missing": {}, "ignored": {}, "unlisted": 0, **counts}
    )


def test_scores_are_counted_one_by_one(metrics: Metrics):
    metrics.version_loaded("v1", [])
    scores = np.array([0.0, 0.0005, 0.03, 0.5, 0.51, 1.0], np.float32)
    metrics.counted("v1", counted(scores))
    assert value(metrics, "rows_total", version="v1") == 6
    assert value(metrics, "score_count", version="v1") == 6
    assert value(metrics, "score_sum", version="v1") == pytest.approx(float(scores.sum()), rel=1e-6)
    assert value(metrics, "score_bucket", version="v1", le="0.001") == 2
    assert value(metrics, "score_bucket", version="v1", le="0.5") == 4
    assert value(metrics, "score_bucket", version="v1", le="1.0") == 6


def test_unknown_and_missing_values_are_counted_by_feature(metrics: Metrics):
    metrics.version_loaded("v1", ["age", "genres"])
    metrics.counted("v1", counted(unknown={"genres": 2}, missing={"age": 3}, unlisted=1))
    metrics.counted("v1", counted(unknown={"genres": 1}, ignored={"of another version": 4}))
    assert value(metrics, "unknown_values_total", version="v1", feature="genres") == 3
    assert value(metrics, "unknown_values_total", version="v1", feature="(unlisted)") == 1
    assert value(metrics, "unknown_values_total", version="v1", feature="of another version") == 4
    assert value(metrics, "missing_values_total", version="v1", feature="age") == 3


def test_in_flight_rises_and_falls(metrics: Metrics):
    metrics.in_flight(1)
    assert value(metrics, "in_flight") == 1
    metrics.in_flight(-1)
    assert value(metrics, "in_flight") == 0


def test_every_reason_of_a_rejection_stands_and_no_other_is_taken(metrics: Metrics):
    for reason in REASONS:
        metrics.rejected(reason)
        assert value(metrics, "rejected_total", reason=reason) == 1
    with pytest.raises(KeyError):
        metrics.rejected("a reason that a client made up")


def test_gpu_memory_is_shown_by_device(tmp_path: Path):
    metrics = Metrics(tmp_path, gpu_memory=lambda: {"cuda:0": 4096})
    assert value(metrics, "gpu_memory_bytes", device="cuda:0") == 4096
    metrics.close()


def test_build_info_names_the_versions(metrics: Metrics):
    (key,) = [key for key in samples(metrics) if "build_info" in key]
    assert "'torch', '2." in key
    assert "'python', '3." in key


def test_a_worker_alone_keeps_its_files_to_itself_and_removes_them():
    metrics = Metrics()
    folder = metrics.folder
    assert folder.is_dir()
    assert value(metrics, "workers") == 1
    metrics.close()
    assert not folder.exists()
