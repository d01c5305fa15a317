"""The leakage report: every check over the data and its parts, before anything is fitted."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from service.scoring.encoded import Ints
from service.scoring.values import DataError
from training.config import Config
from training.data import Dataset
from training.errors import LeakFault
from training.leakage.aggregates import aggregates
from training.leakage.finding import LEAK, Finding, table
from training.leakage.future import after_their_time, mixed_times, times_ahead
from training.leakage.parts import duplicates, shared_units, shifted_values, single_row_ids
from training.leakage.running import running_counts
from training.leakage.sample import MOST_ROWS, Sample, column_of, spread, whole_groups
from training.leakage.single import single_features

log = logging.getLogger("training")


@dataclass(frozen=True, slots=True)
class LeakageReport:
    """All findings, leaks first, and over how many of the rows."""

    findings: tuple[Finding, ...]
    rows: int
    looked_at: int
    seconds: float

    @property
    def leaks(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level == LEAK)

    def to_dict(self) -> dict[str, Any]:
        """JSON values, as the manifest keeps them; the seconds are left out: a manifest tells of the data."""
        return {
            "findings": [finding.to_dict() for finding in self.findings],
            "rows": self.rows,
            "looked_at": self.looked_at,
        }

    def tell(self, *, strict: bool) -> None:
        """Log the table; with `strict` raise LeakFault where there is a leak."""
        of = "" if self.looked_at == self.rows else f" (a draw of {self.looked_at:,} of {self.rows:,} rows)"
        if not self.findings:
            log.info("leakage: none found in %.1f s%s", self.seconds, of)
        for line in table(self.findings):
            (log.warning if self.leaks else log.info)("%s", line)
        if strict and self.leaks:
            names = ", ".join(dict.fromkeys(f"{f.column or 'rows'} ({f.check})" for f in self.leaks))
            raise LeakFault(f"--strict: {len(self.leaks)} leaks found: {names}; see the table above")


def look_for_leaks(data: Dataset, parts: Mapping[str, Ints], config: Config, most: int = MOST_ROWS) -> LeakageReport:
    """Every check, in bounded time and memory; raises DataFault where a column cannot be read."""
    started = time.perf_counter()
    part = np.full(len(data.labels), -1, np.int8)
    for number, rows in enumerate(parts.values()):
        part[rows] = number
    seed = config.train.seed
    sample = _read(data, part, config, spread(len(part), most, seed))
    roles = frozenset(name for name in (config.data.unit, config.data.item, config.data.timestamp) if name)
    found = [
        *mixed_times(sample, config.split.kind, config.data.timestamp),
        *duplicates(sample),
        *_per_group(data, part, config, sample, most),
        *after_their_time(sample),
        *single_features(sample, seed),
        *shared_units(sample, config.split.kind),
        *single_row_ids(sample, roles),
        *shifted_values(sample, roles),
    ]
    findings = sorted(_once(found), key=lambda finding: finding.level != LEAK)
    return LeakageReport(tuple(findings), len(part), len(sample.rows), time.perf_counter() - started)


def _per_group(data: Dataset, part: Any, config: Config, sample: Sample, most: int) -> list[Finding]:
    """What needs all rows of a user or an item: of some users, then of some items, where the data is too large."""
    seed = config.train.seed
    if len(sample.rows) == len(part):
        return [*aggregates(sample), *times_ahead(sample, seed), *running_counts(sample)]
    found = []
    for codes in (data.units, None if data.keys is None else data.keys.codes):
        if codes is not None:
            groups = _read(data, part, config, whole_groups(codes, most, seed))
            found += [*aggregates(groups), *times_ahead(groups, seed), *running_counts(groups)]
    return found


def _read(data: Dataset, part: Any, config: Config, rows: Ints) -> Sample:
    table_ = data.table if len(rows) == len(part) else data.table.take(pa.array(rows))
    columns = []
    for feature in config.schema.features:
        if feature.name not in table_.column_names:
            continue
        try:
            columns.append(column_of(feature, table_.column(feature.name)))
        except DataError as error:
            raise data.fault(error, rows) from None
    return Sample(
        tuple(columns),
        data.labels[rows] > 0,
        part[rows],
        None if data.units is None else data.units[rows],
        None if data.keys is None else data.keys.codes[rows],
        None if data.times is None else data.times[rows],
        rows,
    )


def _once(findings: Sequence[Finding]) -> list[Finding]:
    """The first finding of each check and column: two draws may find the same."""
    kept: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        kept.setdefault((finding.check, finding.column), finding)
    return list(kept.values())
