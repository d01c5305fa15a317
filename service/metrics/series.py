"""Every series of twinrank, by name, with its labels: all from closed sets, never a user, an item or a client's text.

`weight` and `epoch` are not here: a scrape reads them from the stored document (`scrape.py`). The gauges of the
running experiment are the report's figures, which are the same whichever worker is scraped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from service.metrics.cells import Cell, Cells, Histogram

# What no version answered.
NONE = "none"
# Feature names that no version knows share this label; it cannot be the name of one.
UNLISTED = "(unlisted)"

# Of the running experiment, by version: gauge, its field in the report, its place there where it is one of two.
EXPERIMENT = (
    ("experiment_ctr", "ctr", None, "Click rate in the running experiment"),
    ("experiment_lift", "lift", None, "Relative lift of the click rate over the default version's"),
    ("experiment_lift_low", "lift_interval", 0, "Lower end of the lift's interval, valid at every look"),
    ("experiment_lift_high", "lift_interval", 1, "Upper end of the lift's interval, valid at every look"),
    ("online_auc", "auc", None, "AUC over sampled answers joined with clicks"),
    ("online_calibration", "calibration", None, "Clicks predicted by clicks seen, over the same"),
)
EXPERIMENT_SRM = ("experiment_srm_p", "That units fall to the versions as the split says: small is a fault")

SHADOWED = ("scored", "dropped", "failed")
CAPTURED = ("captured", "dropped", "failed")
ASSIGNMENTS = ("split", "override", "default", "no_unit")
REASONS = (
    "queue_full",
    "out_of_memory",
    "deadline",
    "draining",
    "not_ready",
    "auth",
    "body_too_large",
    "too_many_rows",
    "slow_body",
    "abandoned",
    "model_failed",
    "non_finite_score",
)
RESULTS = ("accepted", "duplicate", "late", "invalid")
CODES_OF_NONE = ("400", "401", "403", "404", "408", "409", "413", "415", "422", "429", "499", "500", "503", "504")
CODES_OF_VERSION = ("200", "422", "429", "499", "500", "503", "504")

# Seconds, from a tenth of a millisecond (what a small model takes) to beyond any gateway's patience.
SECONDS = (
    *(1e-4, 2.5e-4, 5e-4, 7.5e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 4e-3, 5e-3, 7.5e-3, 1e-2, 1.5e-2, 2e-2, 3e-2, 5e-2, 7.5e-2),
    *(0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
ROWS = tuple(float(2**power) for power in range(15))
# Click rates are small: half of the buckets lie below 0.1.
SCORES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, *(step / 20 for step in range(2, 21)))


@dataclass(frozen=True, slots=True)
class WorkerSeries:
    """What belongs to the worker as a whole."""

    in_flight: Cell
    workers: Cell
    resident: Cell
    cpu: Cell
    rejected: dict[str, Cell]
    feedback: dict[str, Cell]
    captured: dict[str, Cell]

    @staticmethod
    def make(cells: Cells) -> WorkerSeries:
        rejected = partial(cells.counter, "rejected", "Requests that were not answered with scores, by reason")
        feedback = partial(cells.counter, "feedback", "Events sent to /feedback, by what became of them")
        captured = partial(cells.counter, "captured", "Requests that were to be captured, by result")
        return WorkerSeries(
            in_flight=cells.gauge("in_flight", "Requests to /predict now being answered", {}),
            workers=cells.gauge("workers", "Live worker processes", {}),
            resident=cells.gauge("resident_memory_bytes", "Resident memory of the live workers", {}),
            cpu=cells.counter("cpu_seconds", "CPU time of all workers, the ended ones included", {}),
            rejected={reason: rejected({"reason": reason}) for reason in REASONS},
            feedback={result: feedback({"result": result}) for result in RESULTS},
            captured={result: captured({"result": result}) for result in CAPTURED},
        )


@dataclass(frozen=True, slots=True)
class VersionSeries:
    """What belongs to one version, or to none of them."""

    cells: Cells
    version: str
    request_seconds: Histogram
    requests: dict[str, Cell]

    @staticmethod
    def make(cells: Cells, version: str, codes: Iterable[str]) -> VersionSeries:
        about = "From a request's first byte to its answer"
        seconds = cells.histogram("request_seconds", about, {"version": version}, SECONDS)
        series = VersionSeries(cells, version, seconds, {})
        for code in codes:
            series.requests_of(code)
        return series

    def requests_of(self, code: str) -> Cell:
        cell = self.requests.get(code)
        if cell is None:
            labels = {"version": self.version, "code": code}
            cell = self.requests[code] = self.cells.counter("requests", "Requests to /predict, by status", labels)
        return cell


@dataclass(frozen=True, slots=True)
class EventSeries:
    """What was shown and clicked of one version's predictions."""

    impressions: Cell
    clicks: Cell

    @staticmethod
    def make(cells: Cells, version: str) -> EventSeries:
        return EventSeries(
            impressions=cells.counter("impressions", "Impressions counted", {"version": version}),
            clicks=cells.counter("clicks", "Clicks counted", {"version": version}),
        )


@dataclass(frozen=True, slots=True)
class ModelSeries:
    """What a loaded version feeds; all of it stands at 0 from the load on."""

    cells: Cells
    version: str
    answers: VersionSeries
    queue_seconds: Histogram
    model_seconds: Histogram
    batch_rows: Histogram
    score: Histogram
    rows: Cell
    queue_rows: Cell
    ready: Cell
    load_seconds: Cell
    assignments: dict[str, Cell]
    shadowed: dict[str, Cell]
    unknown: dict[str, Cell]
    missing: dict[str, Cell]

    @staticmethod
    def make(cells: Cells, version: str, features: Iterable[str]) -> ModelSeries:
        of = {"version": version}
        assignments = partial(cells.counter, "assignments", "Requests given to a version, by reason")
        shadowed = partial(cells.counter, "shadow", "Requests that a version was to score as a shadow, by result")
        series = ModelSeries(
            cells,
            version,
            answers=VersionSeries.make(cells, version, CODES_OF_VERSION),
            queue_seconds=cells.histogram("queue_seconds", "From admission to the start of the batch", of, SECONDS),
            model_seconds=cells.histogram("model_seconds", "Encoding and scoring of one batch", of, SECONDS),
            batch_rows=cells.histogram("batch_rows", "Rows of one batch", of, ROWS),
            score=cells.histogram("score", "Scores given", of, SCORES),
            rows=cells.counter("rows", "Rows scored", of),
            queue_rows=cells.gauge("queue_rows", "Rows that wait for their batch", of),
            ready=cells.gauge("model_ready", "1 if ready in every live worker", of),
            load_seconds=cells.gauge("model_load_seconds", "The newest load, in the slowest worker", of, "livemax"),
            assignments={reason: assignments({**of, "reason": reason}) for reason in ASSIGNMENTS},
            shadowed={result: shadowed({**of, "result": result}) for result in SHADOWED},
            unknown={},
            missing={},
        )
        for feature in (*features, UNLISTED):
            series.unknown_of(feature)
        for feature in features:
            series.missing_of(feature)
        return series

    def unknown_of(self, feature: str) -> Cell:
        cell = self.unknown.get(feature)
        if cell is None:
            labels = {"version": self.version, "feature": feature}
            about = "Values, or whole features, that the version does not know"
            cell = self.unknown[feature] = self.cells.counter("unknown_values", about, labels)
        return cell

    def missing_of(self, feature: str) -> Cell:
        cell = self.missing.get(feature)
        if cell is None:
            labels = {"version": self.version, "feature": feature}
            cell = self.missing[feature] = self.cells.counter("missing_values", "Values left out or null", labels)
        return cell


def gpu_memory(cells: Cells, device: str) -> Cell:
    return cells.gauge("gpu_memory_bytes", "Memory that the live workers' allocators hold", {"device": device})
