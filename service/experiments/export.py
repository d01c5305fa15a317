"""An experiment's cells as a file, so that an analyst can recompute every figure of the report.

One row an epoch, version and sub-bucket. What belongs to the arm as a whole (its sampled units, its errors) stands in
each of its rows, what belongs to the epoch too.
"""

from __future__ import annotations

import io
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from service.experiments.evidence import SUB_BUCKETS, Arm, Epoch, Evidence

Format = Literal["csv", "parquet"]
MEDIA_TYPES: dict[Format, str] = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
SCHEMA = pa.schema(
    [
        ("experiment", pa.string()),
        ("epoch", pa.int64()),
        ("started", pa.float64()),  # seconds since 1970
        ("ended", pa.float64()),  # null while it runs
        ("coverage", pa.float64()),
        ("sampled", pa.float64()),  # the part of all units that is in arm_units
        ("version", pa.string()),
        ("is_default", pa.bool_()),
        ("share", pa.float64()),
        ("arm_units", pa.int64()),
        ("arm_errors", pa.int64()),
        ("sub_bucket", pa.int64()),
        ("predictions", pa.int64()),
        ("impressions", pa.int64()),
        ("clicks", pa.int64()),
    ]
)


def export(evidence: Evidence, form: Format) -> bytes:
    """The whole file."""
    sink = io.BytesIO()
    if form == "csv":
        pyarrow.csv.write_csv(cells(evidence), sink)
    else:
        pyarrow.parquet.write_table(cells(evidence), sink)
    return sink.getvalue()


def cells(evidence: Evidence) -> pa.Table:
    """All cells, in the order of epochs, versions and sub-buckets."""
    parts = [_arm(evidence, epoch, arm) for epoch in evidence.epochs for arm in epoch.arms]
    return pa.concat_tables(parts) if parts else SCHEMA.empty_table()


def _arm(evidence: Evidence, epoch: Epoch, arm: Arm) -> pa.Table:
    same = {
        "experiment": evidence.experiment,
        "epoch": epoch.number,
        "started": epoch.started,
        "ended": epoch.ended,
        "coverage": epoch.coverage,
        "sampled": epoch.threshold,
        "version": arm.version,
        "is_default": arm.version == evidence.default,
        "share": arm.share,
        "arm_units": len(arm.units),
        "arm_errors": arm.errors,
    }
    columns = {name: pa.array([value] * SUB_BUCKETS, SCHEMA.field(name).type) for name, value in same.items()}
    counts = {"predictions": arm.predictions, "impressions": arm.impressions, "clicks": arm.clicks}
    columns |= {"sub_bucket": pa.array(np.arange(SUB_BUCKETS)), **{name: pa.array(one) for name, one in counts.items()}}
    return pa.table(columns, schema=SCHEMA)
