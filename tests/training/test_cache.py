"""The cache: rows streamed and encoded once, equal to what reading into memory gives."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

from service.scoring.features import FeatureEncoder
from tests.training.tiny_data import clicks, config, fit, write_data
from training import cache, roles, source
from training.config import Config, ConfigError
from training.data import Dataset, read_dataset
from training.encoding import MappedRows, encode_parts, fit_encoder
from training.errors import DataFault
from training.shuffle import Shuffle

NONE: tuple[list[float], list[float]] = ([0.0] * 5, [0.0])


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that six hundred rows are many blocks."""
    from training import data, encoding

    for module in (cache, source, data, encoding):
        monkeypatch.setattr(module, "BLOCK_ROWS", 64)


def both(folder: Path, made: Config, tmp_path: Path) -> tuple[Dataset, Dataset]:
    return read_dataset(folder, made, seed=1), read_dataset(folder, made, seed=1, cache=tmp_path / "cache")


def holes(rows: pa.Table) -> pa.Table:
    """Some values of every kind missing."""
    for name, step in (("user_id", 7), ("item_id", 11), ("age", 5)):
        values = [None if n % step == 0 else value for n, value in enumerate(rows.column(name).to_pylist())]
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(values))
    return rows


def test_streamed_rows_are_those_read_into_memory(tmp_path: Path) -> None:
    read, streamed = both(write_data(tmp_path / "data", holes(clicks())), config(), tmp_path)
    assert streamed.table.equals(read.table)
    assert streamed.notes == read.notes
    assert streamed.files == read.files
    assert streamed.keys is not None
    assert read.keys is not None
    assert streamed.keys.distinct == read.keys.distinct
    for name in ("labels", "units", "times", "positions"):
        assert np.array_equal(getattr(streamed, name), getattr(read, name))
    assert np.array_equal(streamed.keys.codes, read.keys.codes)


@pytest.mark.parametrize("kind", ["time", "random"])
def test_encoded_parts_are_those_of_the_encoder_fitted_in_memory(tmp_path: Path, kind: str) -> None:
    made = config(split={"kind": kind})
    read, streamed = both(write_data(tmp_path / "data", holes(clicks())), made, tmp_path)
    cuts = read.cut(made)
    parts = cuts.parts(read.positions)
    encoder = fit_encoder(made.schema, streamed, parts["train"])
    found = encode_parts(streamed, encoder, made, cuts, parts, tmp_path / "cache")
    fitted = FeatureEncoder.fit(made.schema, read.table.take(pa.array(parts["train"])))
    assert encoder.layout == fitted.layout
    for name, rows in parts.items():
        wanted = read.encode(fitted, rows)
        assert np.array_equal(found[name].numerics, wanted.numerics)
        assert np.array_equal(found[name].ids, wanted.ids)
        for bag, other in zip(found[name].bags, wanted.bags, strict=True):
            assert np.array_equal(bag.values, other.values)
            assert np.array_equal(bag.offsets, other.offsets)


def as_text(rows: pa.Table, path: Path, *, header: bool, delimiter: str = ",") -> None:
    options = pa.csv.WriteOptions(include_header=header, delimiter=delimiter)
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
        pa.csv.write_csv(rows, file, options)


def test_gzipped_text_without_a_header_is_read_by_the_names_given(tmp_path: Path) -> None:
    folder = write_data(tmp_path / "data")
    (folder / "events.parquet").unlink()
    with_header, without = config(data={"format": "csv"}), {"format": "tsv", "columns": clicks().column_names}
    as_text(clicks(), folder / "events.csv", header=True)
    as_text(clicks(), folder / "events.tsv.gz", header=False, delimiter="\t")
    read = read_dataset(folder, with_header, seed=1)
    assert read_dataset(folder, config(data=without), seed=1).table.equals(read.table)
    assert read_dataset(folder, config(data=without), seed=1, cache=tmp_path / "cache").table.equals(read.table)


def test_a_bad_value_of_text_without_a_header_is_found_by_its_line(tmp_path: Path) -> None:
    folder = write_data(tmp_path / "data")
    (folder / "events.parquet").unlink()
    rows = clicks().set_column(2, "age", pa.array(["old" if n == 500 else "30" for n in range(600)]))
    as_text(rows, folder / "events.tsv", header=False, delimiter="\t")
    made = config(data={"format": "tsv", "columns": rows.column_names})
    with pytest.raises(DataFault, match="line 501, column 'age': 'old' is no number"):
        fit(made, folder, tmp_path / "a")


def test_names_are_for_text_alone() -> None:
    with pytest.raises(ConfigError, match="csv and tsv files without a header"):
        config(data={"columns": ["a", "b"]})


def test_names_survive_the_manifest() -> None:
    made = config(data={"format": "csv", "columns": ["a", "b"]})
    assert Config.from_dict(made.to_dict()) == made


def test_files_whose_types_differ_are_streamed_as_they_are_read(tmp_path: Path) -> None:
    folder, rows = write_data(tmp_path / "data"), clicks()
    (folder / "events.parquet").unlink()
    pq.write_table(rows.slice(0, 200), folder / "a.parquet", row_group_size=50)
    wide = rows.slice(200).set_column(2, "age", rows.slice(200)["age"].cast(pa.float64()))
    pq.write_table(wide, folder / "b.parquet")
    read, streamed = both(folder, config(), tmp_path)
    assert streamed.table.equals(read.table)


def test_a_bad_label_of_a_later_file_is_placed_there(tmp_path: Path) -> None:
    folder, rows = write_data(tmp_path / "data"), clicks()
    labels = rows["clicked"].to_pylist()
    labels[400] = 2
    pq.write_table(rows.slice(0, 200), folder / "events.parquet")
    pq.write_table(rows.set_column(4, "clicked", pa.array(labels)).slice(200), folder / "later.parquet")
    with pytest.raises(DataFault, match=r"later.parquet, row 201, column 'clicked': the label must be 0 or 1, found 2"):
        read_dataset(folder, config(), seed=1, cache=tmp_path / "cache")


def test_what_is_cached_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_data(tmp_path / "data")
    first = read_dataset(folder, config(), seed=1, cache=tmp_path / "cache")
    monkeypatch.setattr(roles, "_write", None)
    assert read_dataset(folder, config(), seed=1, cache=tmp_path / "cache").table.equals(first.table)


def test_other_data_are_cached_apart(tmp_path: Path) -> None:
    folder = write_data(tmp_path / "data")
    read_dataset(folder, config(), seed=1, cache=tmp_path / "cache")
    write_data(folder, clicks(rows=700))
    assert len(read_dataset(folder, config(), seed=1, cache=tmp_path / "cache").labels) == 700


def test_what_a_killed_run_left_is_cleared_away(tmp_path: Path) -> None:
    left = tmp_path / "cache" / f"abc.part-{2**22 + 1}"  # no process has that id
    alive = tmp_path / "cache" / f"abc.part-{os.getppid()}"
    for path in (left, alive):
        path.mkdir(parents=True)
        (path / "ids").write_bytes(b"half")
    read_dataset(write_data(tmp_path / "data"), config(), seed=1, cache=tmp_path / "cache")
    assert not left.exists()
    assert alive.exists()


def test_a_fault_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    rows = clicks().set_column(4, "clicked", pa.array([0, 3] * 300))
    with pytest.raises(DataFault):
        read_dataset(write_data(tmp_path / "data", rows), config(), seed=1, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def mapped_rows(tmp_path: Path) -> MappedRows:
    made = config()
    data = read_dataset(write_data(tmp_path / "data"), made, seed=1, cache=tmp_path / "cache")
    cuts = data.cut(made)
    parts = cuts.parts(data.positions)
    encoder = fit_encoder(made.schema, data, parts["train"])
    encoded = encode_parts(data, encoder, made, cuts, parts, tmp_path / "cache")
    return MappedRows(encoded["train"], data.labels[parts["train"]], "cpu")


def whole(shuffle: Shuffle) -> list[Any]:
    return [(b.numerics, b.ids, *b.bag_values, *b.bag_offsets, b.labels) for b in shuffle.epoch()]


def marks(batches: list[Any]) -> np.ndarray[Any, Any]:
    """All rows, sorted."""
    rows = [torch.cat([b[0].double(), b[1].double(), b[-1].double()[:, None]], 1).numpy() for b in batches]
    table = np.concatenate(rows)
    return table[np.lexsort(table.T)]


def test_an_epoch_by_blocks_meets_every_row_once(tmp_path: Path) -> None:
    rows = mapped_rows(tmp_path)
    by_blocks = Shuffle(rows, 32, NONE, 1, buffer_bytes=rows.bytes // 4, block_rows=32)
    at_once = Shuffle(rows, 32, NONE, 1)
    first = whole(by_blocks)
    by_blocks.advance()
    second = whole(by_blocks)
    assert np.array_equal(marks(first), marks(whole(at_once)))
    assert np.array_equal(marks(second), marks(first))
    assert not torch.equal(first[0][0], second[0][0])


@pytest.mark.parametrize("ahead", [False, True])  # whether the next buffer is made while this one is trained on
def test_an_epoch_by_blocks_goes_on_where_it_was_left(tmp_path: Path, ahead: bool) -> None:
    rows, options = mapped_rows(tmp_path), {"block_rows": 32, "ahead": ahead}
    shares = ([0.2] * 5, [0.2])
    unbroken = Shuffle(rows, 32, shares, 1, rows.bytes // 4, block_rows=32)
    wanted = whole(unbroken)
    for stop in (1, 4, len(wanted) - 1):
        stopped = Shuffle(rows, 32, shares, 1, rows.bytes // 4, **options)
        batches = stopped.epoch()
        for _ in range(stop):
            next(batches)
        resumed = Shuffle(rows, 32, shares, 99, rows.bytes // 4, **options)
        resumed.load_state_dict(stopped.state_dict())
        for batch, other in zip(whole(resumed), wanted[stop:], strict=True):
            assert all(torch.equal(a, b) for a, b in zip(batch, other, strict=True))


@pytest.mark.parametrize("file", ["labels", "rows.arrow", "meta.json", "codes_0"])
@pytest.mark.parametrize("left", [0, 10, None])
def test_a_damaged_cache_is_made_anew(tmp_path: Path, file: str, left: int | None) -> None:
    """Emptied, as files are after the power has gone, cut off, or removed."""
    folder, home = write_data(tmp_path / "data"), tmp_path / "cache"
    first = read_dataset(folder, config(), seed=1).labels.tolist()
    read_dataset(folder, config(), seed=1, cache=home)
    path = next(home.glob(f"*/{file}"))
    if left is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:left])
    again = read_dataset(folder, config(), seed=1, cache=home)
    assert again.labels.tolist() == first
    assert again.table.num_rows == len(first)


def test_encoded_rows_that_were_emptied_are_not_zeros_to_learn_from(tmp_path: Path) -> None:
    wanted = mapped_rows(tmp_path).encoded.ids.tolist()
    for path in (tmp_path / "cache").glob("*/train/ids"):
        path.write_bytes(b"")
    assert mapped_rows(tmp_path).encoded.ids.tolist() == wanted


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (pa.array(["7"] * 600), "b.parquet: column types do not agree with those of the files before: .*age"),
        (pa.array([0.5] * 600), "a.parquet: column 'age' is of another type in other files: Integer value"),
    ],
)
def test_files_whose_types_do_not_agree_are_named_with_the_column(tmp_path: Path, column: pa.Array, says: str) -> None:
    folder, rows = write_data(tmp_path / "data"), clicks()
    (folder / "events.parquet").unlink()
    pq.write_table(rows.set_column(2, "age", pa.array([2**60 + 1] * 600)), folder / "a.parquet")
    pq.write_table(rows.set_column(2, "age", column), folder / "b.parquet")
    with pytest.raises(DataFault, match=says):
        read_dataset(folder, config(), seed=1, cache=tmp_path / "cache")
