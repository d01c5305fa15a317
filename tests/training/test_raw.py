"""Raw files of Adult and MovieLens-1M, made up here in their owners' format, become rows that the reader takes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from training.__main__ import main
from training.config import read_config
from training.data import read_dataset
from training.errors import FetchError
from training.raw import convert_raw

ADULT = (
    "39, {work}, 77516, Bachelors, 13, Never-married, Sales, Own-child, White, Male, {gain}, 0, 40, Cuba, {income}\n"
)


@pytest.fixture
def adult(tmp_path: Path) -> Path:
    raw = tmp_path / "raw"
    raw.mkdir()
    rows = [
        ADULT.format(work="?" if n % 5 == 0 else "Private", gain=n, income=("<=50K", ">50K")[n % 2]) for n in range(20)
    ]
    (raw / "adult.data").write_text("".join(rows) + "\n")
    test = "|1x3 Cross validator\n" + "".join(row.replace("K\n", "K.\n") for row in rows[:4]) + "\n"
    (raw / "adult.test.gz").write_bytes(gzip.compress(test.encode()))
    return raw


@pytest.fixture
def movielens(tmp_path: Path) -> Path:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "users.dat").write_text("1::F::1::10::48067\n2::M::56::16::70072\n")
    (raw / "movies.dat").write_bytes("1::Amélie (2001)::Comedy|Romance\n2::No Year::Drama\n".encode("latin-1"))
    ratings = [f"{1 + n % 2}::{1 + n // 2 % 2}::{1 + n % 5}::{978300000 + n}" for n in reversed(range(40))]
    (raw / "ratings.dat").write_text("\n".join(ratings) + "\n")
    return raw


def quiet(_: str) -> None:
    pass


def test_adults_comment_blanks_full_stops_and_question_marks_are_gone(adult: Path, tmp_path: Path) -> None:
    convert_raw("adult", adult, tmp_path / "out", say=quiet)
    test = pq.read_table(tmp_path / "out" / "test").to_pylist()
    assert [row["clicked"] for row in test] == [0, 1, 0, 1]
    assert [row["workclass"] for row in test] == [None, "Private", "Private", "Private"]
    assert test[0]["age"] == 39


def test_adults_validation_part_is_a_fifth_of_its_data(adult: Path, tmp_path: Path) -> None:
    convert_raw("adult", adult, tmp_path / "out", say=quiet)
    parts = [pq.read_table(tmp_path / "out" / part)["capital_gain"].to_pylist() for part in ("train", "valid")]
    assert [len(part) for part in parts] == [16, 4]
    assert sorted(parts[0] + parts[1]) == list(range(20))


def test_ratings_become_events_in_time_order_with_their_users_features(movielens: Path, tmp_path: Path) -> None:
    convert_raw("movielens-1m", movielens, tmp_path / "out", say=quiet)
    events = pq.read_table(tmp_path / "out" / "events.parquet").to_pylist()
    assert events[3] == {
        "user_id": 2,
        "item_id": 2,
        "timestamp": 978300003,
        "clicked": 1,
        "gender": "M",
        "age": "56",
        "occupation": "16",
        "zip_area": "7",
    }
    assert [event["timestamp"] for event in events] == list(range(978300000, 978300040))
    films = pq.read_table(tmp_path / "out" / "items.parquet").to_pylist()
    assert films[0] == {"item_id": 1, "title": "Amélie (2001)", "year": 2001, "genres": ["Comedy", "Romance"]}
    assert films[1]["year"] is None


def test_a_split_made_by_others_is_kept_with_a_config_that_says_so(movielens: Path, tmp_path: Path) -> None:
    (movielens / "ratings.dat").unlink()
    for n, part in enumerate(("train", "valid", "test")):
        rows = f"user_id,movie_id,label,rating,ts\n1,1,1,5,{100 + n}\n2,2,0,2,{100 + n}\n"
        (movielens / f"{part}.csv.gz").write_bytes(gzip.compress(rows.encode()))
    convert_raw("movielens-1m", movielens, tmp_path / "out", say=quiet)
    config = read_config(tmp_path / "out" / "movielens-1m.toml")
    assert config.split.kind == "files"
    assert read_dataset(tmp_path / "out", config, seed=1, part="test").labels.tolist() == [1, 0]


@pytest.mark.parametrize("name", ["adult", "movielens-1m"])
def test_what_was_fetched_is_read_by_its_config(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    raw = request.getfixturevalue("adult" if name == "adult" else "movielens")
    convert_raw(name, raw, tmp_path / "out", say=quiet)
    config = read_config(tmp_path / "out" / f"{name}.toml")
    assert len(read_dataset(tmp_path / "out", config, seed=1).labels) in (24, 40)


def test_a_config_that_is_there_already_stays(adult: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "adult.toml").write_text("mine")
    convert_raw("adult", adult, tmp_path / "out", say=quiet)
    assert (tmp_path / "out" / "adult.toml").read_text() == "mine"


def test_a_line_with_a_field_too_few_is_named(adult: Path, tmp_path: Path) -> None:
    with (adult / "adult.data").open("a") as file:
        file.write("1, 2\n")
    with pytest.raises(FetchError, match=r"adult\.data, line 22: 2 fields where 15"):
        convert_raw("adult", adult, tmp_path / "out", say=quiet)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["adult", "--from", "{empty}"], 1, "adult.data (or adult.data.gz) is missing"),
        (["adult"], 2, "name their folder with --from"),
        (["movielens-100k", "--from", "{empty}"], 2, "--from is for adult, movielens-1m"),
    ],
)
def test_what_cannot_be_fetched_is_said_in_one_line(
    arguments: list[str], code: int, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [argument.format(empty=tmp_path) for argument in arguments]
    try:
        found: object = main(["fetch", *filled, "--out", str(tmp_path / "out")])
    except SystemExit as ended:
        found = ended.code
    assert found == code
    assert says in capsys.readouterr().err
