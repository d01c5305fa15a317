"""The exported cells: all that a report is made of."""

import io

import pyarrow.csv
import pyarrow.parquet
import pytest

from service.experiments.evidence import SUB_BUCKETS
from service.experiments.export import SCHEMA, cells, export
from tests.service.experiments.hand_made import arm, epoch, evidence, two_arms

FOUND = two_arms(1, {"v1": 0.05, "v2": 0.06}, 5000)


def read(body: bytes, form: str):
    return {"csv": pyarrow.csv.read_csv, "parquet": pyarrow.parquet.read_table}[form](io.BytesIO(body))


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_both_formats_hold_the_same_cells(form: str):
    table = read(export(FOUND, form), form)
    assert table.column_names == SCHEMA.names
    assert table.num_rows == 2 * SUB_BUCKETS
    for name in ("version", "share", "sub_bucket", "clicks", "impressions", "arm_units"):
        assert table[name].to_pylist() == cells(FOUND)[name].to_pylist()


def test_a_cell_holds_its_sub_buckets_counts():
    (one,) = FOUND.epochs
    rows = cells(FOUND).filter(pyarrow.compute.field("version") == "v2").to_pylist()
    assert [row["clicks"] for row in rows] == one.arms[1].clicks.tolist()
    assert [row["sub_bucket"] for row in rows] == list(range(SUB_BUCKETS))
    assert (rows[0]["arm_units"], rows[0]["is_default"], rows[0]["ended"]) == (1000, False, None)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_an_experiment_without_epochs_is_a_header(form: str):
    table = read(export(evidence(), form), form)
    assert (table.column_names, table.num_rows) == (SCHEMA.names, 0)


def test_an_epoch_that_ended_says_when():
    assert cells(evidence(epoch(arm("v1", 1.0), ended=1_700_000_001.5)))["ended"][0].as_py() == 1_700_000_001.5
