"""Obtains a data set from the Python package index and writes it as Parquet with its configs."""

from __future__ import annotations

import hashlib
import importlib.resources
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from training.errors import FetchError

DATA_SETS = ("movielens-100k",)
WHEEL = "recbole-1.2.1-py3-none-any.whl"
WHEEL_SHA256 = "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407"
_INSIDE = "recbole/dataset_example/ml-100k/ml-100k."
_COLUMNS = ("user_id", "item_id", "rating", "timestamp", "movie_title", "release_year", "class")
_USER_COLUMNS = ("age", "gender", "occupation", "zip_code")
_FILES = ("events.parquet", "items.parquet", "v1.toml", "v2.toml")
LICENCE = """\
MovieLens 100K (GroupLens Research, University of Minnesota), https://grouplens.org/datasets/movielens/100k/
  For research use: no redistribution without separate permission, no commercial use without permission of GroupLens.
  Cite: F. Maxwell Harper and Joseph A. Konstan. 2015. The MovieLens Datasets: History and Context. ACM TiiS 5, 4."""


def fetch_movielens(out: Path, *, wheel: Path | None = None, say: Callable[[str], None] = print) -> None:
    """Write events.parquet, items.parquet, v1.toml and v2.toml into the folder `out`, unless it has them all.

    The ratings ride in recbole's wheel, which is downloaded (or given as `wheel`), checked against its sha256 and read,
    never installed. Raises FetchError.
    """
    say(LICENCE)
    if all((out / name).is_file() for name in _FILES):
        say(f"{out}: already there")
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=out) as aside:
            folder = Path(aside)
            events, items = _read_wheel(wheel or _download(folder))
            pa.parquet.write_table(events, folder / "events.parquet", compression="zstd")
            pa.parquet.write_table(items, folder / "items.parquet", compression="zstd")
            for name in ("v1.toml", "v2.toml"):
                config = importlib.resources.files("training") / "configs" / name
                (folder / name).write_bytes(config.read_bytes())
            for name in _FILES:
                if name.endswith(".toml") and (out / name).exists():
                    continue  # a config that its owner may have changed
                os.replace(folder / name, out / name)
    except OSError as error:
        raise FetchError(f"{out}: {error.strerror or error}") from None
    say(f"{out}: {events.num_rows} events, {items.num_rows} items")


def _download(folder: Path) -> Path:
    """The wheel by pip, which knows the machine's index and proxy. Raises FetchError."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), "recbole==1.2.1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    path = folder / WHEEL
    if done.returncode or not path.is_file():
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        reason = lines[0].removeprefix("ERROR: ")[:200] if lines else f"pip exited with {done.returncode}"
        raise FetchError(f"movielens-100k: pip could not download {WHEEL} (is the package index reachable?): {reason}")
    return path


def _read_wheel(path: Path) -> tuple[pa.Table, pa.Table]:
    """Events and items. Raises FetchError where the file is not the one known."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != WHEEL_SHA256:
        raise FetchError(f"{path.name}: sha256 is {digest}, expected {WHEEL_SHA256}")
    with zipfile.ZipFile(path) as archive:
        ratings, items, users = (_table(archive, name) for name in ("inter", "item", "user"))
    return _events(ratings, users), _items(items)


def _table(archive: zipfile.ZipFile, name: str) -> pa.Table:
    """A typed-header TSV (`age:token`) as text columns; no quoting in these files."""
    with archive.open(_INSIDE + name) as file:
        text = pa.csv.read_csv(
            file,
            parse_options=pa.csv.ParseOptions(delimiter="\t", quote_char=False),
            convert_options=pa.csv.ConvertOptions(
                column_types={
                    f"{n}:{kind}": pa.string()
                    for n in (*_COLUMNS, *_USER_COLUMNS)
                    for kind in ("token", "token_seq", "float")
                },
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
    return text.rename_columns([column.split(":")[0] for column in text.column_names])


def _events(ratings: pa.Table, users: pa.Table) -> pa.Table:
    """One row a rating, oldest first; a rating of 4 or 5 is a click."""
    order = ratings.append_column("n", pa.array(range(ratings.num_rows)))
    joined = order.join(users, "user_id", join_type="inner").sort_by("n")
    columns = {
        "user_id": joined["user_id"].cast(pa.int64()),
        "item_id": joined["item_id"].cast(pa.int64()),
        "timestamp": joined["timestamp"].cast(pa.int64()),
        "clicked": pc.greater_equal(joined["rating"].cast(pa.float64()), 4.0).cast(pa.int8()),
        "age": joined["age"].cast(pa.int64()),
        "gender": joined["gender"],
        "occupation": joined["occupation"],
        "zip_area": pc.utf8_slice_codeunits(joined["zip_code"], 0, 1),
    }
    events = pa.table(columns)
    return events.take(
        pc.sort_indices(events, [("timestamp", "ascending"), ("user_id", "ascending"), ("item_id", "ascending")])
    )


def _items(items: pa.Table) -> pa.Table:
    """One row a film; `year` is missing for the two films whose year the file garbles."""
    years = items["release_year"]
    years = pc.if_else(pc.match_substring_regex(years, "^[0-9]{4}$"), years, pa.scalar(None, pa.string()))
    return pa.table(
        {
            "item_id": items["item_id"].cast(pa.int64()),
            "title": items["movie_title"],
            "year": years.cast(pa.int64()),
            "genres": pc.split_pattern(items["class"], " "),
        }
    )
