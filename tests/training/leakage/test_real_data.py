"""No leak is seen in public data that has none. Skipped where the data is not beside the repository."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from training.config import Config
from training.data import read_dataset
from training.leakage.report import look_for_leaks

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
NUMERIC = ("age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours")
ADULT = ("age", "workclass", "fnlwgt", "education", "education_num", "marital", "occupation", "relationship", "race")
ADULT += ("sex", "capital_gain", "capital_loss", "hours", "country", "label")


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not (DATA / name).is_dir(), reason=f"no {name} beside the repository")


def feature(name: str, kind: str, side: str = "user") -> dict[str, Any]:
    return {"name": name, "kind": kind, "side": side}


def leaks(folder: Path, config: dict[str, Any]) -> list[tuple[str, str]]:
    made = Config.from_dict(config)
    data = read_dataset(folder, made, seed=1)
    found = look_for_leaks(data, data.cut(made).parts(data.positions), made)
    return [(finding.check, finding.column) for finding in found.leaks]


def adult(name: str) -> pa.Table:
    with gzip.open(DATA / "adult" / name, "rt") as file:
        rows = [[value.strip() for value in line.split(",")] for line in file if line.count(",") == 14]
    columns: dict[str, Any] = {name: [row[n] for row in rows] for n, name in enumerate(ADULT)}
    columns |= {name: [float(value) for value in columns[name]] for name in NUMERIC}
    return pa.table(columns | {"label": [int(">50K" in value) for value in columns["label"]]})


@needs("adult")
def test_adult_has_no_leak(tmp_path: Path) -> None:
    train = adult("adult.data.gz")
    for part, rows in (("train", train[:26_048]), ("valid", train[26_048:]), ("test", adult("adult.test.gz"))):
        (tmp_path / part).mkdir()
        pq.write_table(rows, tmp_path / part / "rows.parquet")
    features = [feature(name, "numeric" if name in NUMERIC else "categorical") for name in ADULT[:-1]]
    assert leaks(tmp_path, {"data": {"label": "label"}, "split": {"kind": "files"}, "features": features}) == []


USER_ITEM = {"data": {"unit": "user_id", "item": "item_id", "timestamp": "timestamp"}}
MOVIELENS = [feature("user_id", "categorical"), feature("age", "numeric"), feature("gender", "categorical")]
MOVIELENS += [feature("occupation", "categorical"), feature("item_id", "categorical", "item")]


@needs("movielens-100k")
def test_movielens_100k_has_no_leak(tmp_path: Path) -> None:
    ratings = np.loadtxt(DATA / "movielens-100k" / "u.data", dtype=np.int64)
    lines = (DATA / "movielens-100k" / "u.user").read_text().splitlines()
    pq.write_table(movielens(*ratings.T, [line.split("|")[:4] for line in lines], like=4), tmp_path / "rows.parquet")
    assert leaks(tmp_path, USER_ITEM | {"features": MOVIELENS}) == []


@needs("movielens-1m-time")
@pytest.mark.slow
def test_movielens_1m_has_no_leak(tmp_path: Path) -> None:
    home = DATA / "movielens-1m-time"
    rows = pa.concat_tables(pyarrow.csv.read_csv(home / f"{part}.csv.gz") for part in ("train", "valid", "test"))
    columns = [rows.column(name).to_numpy() for name in ("user_id", "movie_id", "label", "ts")]
    lines = (home / "users.dat").read_text(encoding="latin-1").splitlines()
    users = [[fields[0], fields[2], fields[1], fields[3]] for fields in (line.split("::") for line in lines)]
    pq.write_table(movielens(*columns, users, like=1), tmp_path / "rows.parquet")
    assert leaks(tmp_path, USER_ITEM | {"features": MOVIELENS}) == []


def movielens(user: Any, item: Any, rating: Any, time: Any, users: list[list[str]], *, like: int) -> pa.Table:
    """Rows with the age, gender and occupation of their user, a rating from `like` on being a click."""
    known = {int(fields[0]): fields for fields in users}
    whose = [known[key] for key in user.tolist()]
    columns = {"user_id": user, "item_id": item, "timestamp": time, "clicked": (rating >= like).astype(np.int8)}
    about = {"age": [int(w[1]) for w in whose], "gender": [w[2] for w in whose], "occupation": [w[3] for w in whose]}
    return pa.table({**columns, **about})
