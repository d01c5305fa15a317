"""Raw files of public data sets, as their owners give them away, to Parquet with a config that fits.

What the reader cannot take as it is: Adult's comment line, blanks and test labels that end in a full stop;
MovieLens-1M's `::`, Latin-1 and ratings instead of clicks. Any of the files may be gzipped.
"""

from __future__ import annotations

import gzip
import importlib.resources
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from training.errors import FetchError

_ADULT_NUMBERS = ("age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week")
_ADULT = (
    *("age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship"),
    *("race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income"),
)
_ADULT_VALID = 0.2  # of adult.data, as in rtdl-revisiting-models; the file itself names no validation part
_USERS = ("user_id", "gender", "age", "occupation", "zip_code")
_FILMS = ("item_id", "title", "genres")
_RATINGS = ("user_id", "item_id", "rating", "timestamp")
_PARTS = ("train", "valid", "test")


def convert_raw(name: str, raw: Path, out: Path, *, say: Callable[[str], None] = print) -> None:
    """Write the data set `name` that lies in the folder `raw` into `out`; raises FetchError naming file and line.

    A config that is there already stays: its owner may have changed it.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        written = RAW_DATA_SETS[name](raw, out)
    except UnicodeDecodeError as error:
        raise FetchError(f"{raw}: a file of {name} is not the text that it should be ({error.reason})") from None
    except (EOFError, zlib.error) as error:
        raise FetchError(f"{raw}: a gzipped file of {name} is damaged: {error}") from None
    except OSError as error:
        raise FetchError(f"{error.filename or raw}: {error.strerror or error}") from None
    except pa.ArrowException as error:
        raise FetchError(f"{raw}: cannot be read: {str(error).splitlines()[0][:200]}") from None
    say(f"{out}: {written}")


def _adult(raw: Path, out: Path) -> str:
    train, test = (_adult_table(_existing(raw, file)) for file in ("adult.data", "adult.test"))
    order = np.random.Generator(np.random.Philox(0)).permutation(train.num_rows)
    held = round(train.num_rows * _ADULT_VALID)
    parts = {"train": train.take(pa.array(np.sort(order[held:]))), "valid": train.take(pa.array(np.sort(order[:held])))}
    counts = _write_parts(out, {**parts, "test": test})
    _write_config(out, "adult", {})
    return counts


def _adult_table(path: Path) -> pa.Table:
    rows = list(_fields(path, ",", len(_ADULT), "utf-8"))
    columns = {name: pa.array(values) for name, values in zip(_ADULT, zip(*rows, strict=True), strict=True)}
    for name, column in columns.items():
        columns[name] = pc.if_else(pc.equal(column, "?"), pa.scalar(None, pa.string()), column)
    for name in _ADULT_NUMBERS:
        columns[name] = columns[name].cast(pa.int64())
    income = columns.pop("income")
    return pa.table({**columns, "clicked": pc.starts_with(income, ">50K").cast(pa.int8())})


def _movielens(raw: Path, out: Path) -> str:
    users = _dat_table(_existing(raw, "users.dat"), _USERS)
    users = users.append_column("zip_area", pc.utf8_slice_codeunits(users["zip_code"], 0, 1)).drop_columns("zip_code")
    pq.write_table(_films(_dat_table(_existing(raw, "movies.dat"), _FILMS)), out / "items.parquet", compression="zstd")
    try:
        ratings = _dat_table(_existing(raw, "ratings.dat"), _RATINGS)
    except FetchError:
        parts = {part: _existing(raw, f"{part}.csv") for part in _PARTS}  # a split that somebody has made already
    else:
        ratings = ratings.append_column(
            "clicked", pc.greater_equal(ratings["rating"].cast(pa.int8()), 4).cast(pa.int8())
        )
        events = _events(ratings, users)
        pq.write_table(events, out / "events.parquet", compression="zstd")
        _write_config(out, "movielens-1m", {})
        return f"{events.num_rows} events"
    renamed = {"movie_id": "item_id", "ts": "timestamp", "label": "clicked"}
    tables = {}
    for part, path in parts.items():
        table = pa.csv.read_csv(path)
        table = table.rename_columns([renamed.get(name, name) for name in table.column_names])
        if lacking := [
            name for name in ("user_id", "item_id", "timestamp", "clicked") if name not in table.column_names
        ]:
            raise FetchError(f"{path}: column '{lacking[0]}' is missing")
        tables[part] = _events(table, users)
    counts = _write_parts(out, tables)
    _write_config(out, "movielens-1m", {'kind = "time"': 'kind = "files"'})
    return counts


def _events(ratings: pa.Table, users: pa.Table) -> pa.Table:
    """One row a rating, oldest first, with its user's features."""
    names = ("user_id", "item_id", "timestamp")
    keyed = pa.table({name: ratings[name].cast(pa.int64()) for name in names}).append_column(
        "clicked", ratings["clicked"].cast(pa.int8())
    )
    people = users.set_column(0, "user_id", users["user_id"].cast(pa.int64()))
    return keyed.join(people, "user_id").sort_by([(name, "ascending") for name in ("timestamp", "user_id", "item_id")])


def _films(films: pa.Table) -> pa.Table:
    years = [re.search(r"\((\d{4})\)\s*$", title) for title in films["title"].to_pylist()]
    return pa.table(
        {
            "item_id": films["item_id"].cast(pa.int64()),
            "title": films["title"],
            "year": pa.array([int(year[1]) if year else None for year in years], pa.int64()),
            "genres": pc.split_pattern(films["genres"], "|"),
        }
    )


def _dat_table(path: Path, names: tuple[str, ...]) -> pa.Table:
    rows = _fields(path, "::", len(names), "latin-1")
    return pa.table({name: pa.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)})


def _fields(path: Path, separator: str, count: int, encoding: str) -> Iterator[list[str]]:
    """The fields of each line, blanks taken off; comments and empty lines are left out."""
    # A file is a few MiB; decoded whole, it is closed before anything can go wrong in it.
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode(encoding)
    found = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("|"):
            continue
        fields = [field.strip() for field in line.split(separator)]
        if len(fields) != count:
            raise FetchError(f"{path}, line {number}: {len(fields)} fields where {count} are needed")
        found = True
        yield fields
    if not found:
        raise FetchError(f"{path}: holds no rows")


def _existing(raw: Path, name: str) -> Path:
    for path in (raw / name, raw / f"{name}.gz"):
        if path.is_file():
            return path
    raise FetchError(f"{raw}: {name} (or {name}.gz) is missing")


def _write_parts(out: Path, tables: dict[str, pa.Table]) -> str:
    for part, table in tables.items():
        (out / part).mkdir(exist_ok=True)
        pq.write_table(table, out / part / "rows.parquet", compression="zstd")
    return ", ".join(f"{table.num_rows} {part}" for part, table in tables.items()) + " rows"


def _write_config(out: Path, name: str, changes: dict[str, str]) -> None:
    path = out / f"{name}.toml"
    if path.exists():
        return
    text = (importlib.resources.files("training") / "configs" / path.name).read_text(encoding="utf-8")
    for old, new in changes.items():
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


RAW_DATA_SETS: dict[str, Callable[[Path, Path], str]] = {"adult": _adult, "movielens-1m": _movielens}
