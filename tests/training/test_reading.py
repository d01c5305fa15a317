"""Files to tables: text stays text, and what is broken is named with its file and line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from training.errors import DataFault
from training.reading import data_files, read_rows


def csv_file(tmp_path: Path, text: str | bytes, name: str = "rows.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def values(path: Path, format_: str = "csv", columns: list[str] | None = None) -> dict[str, list[object]]:
    found: dict[str, list[object]] = read_rows([path], format_, columns).table.to_pydict()
    return found


def fault(path: Path, format_: str = "csv") -> str:
    with pytest.raises(DataFault) as caught:
        read_rows([path], format_, None)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("rows", "line", "found"),
    [
        ("u1,i1,1,\nu2,i2,0,\n", 2, 4),
        ("u1,i1,1\nu2,i2,0,\n", 3, 4),
        ("u1,i1\nu2,i2,0\n", 2, 2),
        ('"u\n1",i1,1\n\nu2,i2\n', 5, 2),
    ],
)
def test_tr01_a_ragged_line_stops_with_its_number_and_the_fields_found(
    tmp_path: Path, rows: str, line: int, found: int
) -> None:
    path = csv_file(tmp_path, "user_id,item_id,clk\n" + rows)
    assert fault(path) == f"{path}, line {line}: expected 3 fields, found {found}"


def test_text_stays_text_blank_is_missing_and_na_is_a_value(tmp_path: Path) -> None:
    path = csv_file(tmp_path, 'store,brand,country\n007,4101,NA\n7,"",None\n07,,nan\n')
    assert values(path) == {
        "store": ["007", "7", "07"],
        "brand": ["4101", None, None],
        "country": ["NA", "None", "nan"],
    }


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    assert list(values(csv_file(tmp_path, b"\xef\xbb\xbfa,b\n1,2\n"))) == ["a", "b"]


def test_quoted_values_may_hold_commas_quotes_and_line_breaks(tmp_path: Path) -> None:
    assert values(csv_file(tmp_path, 'a,b\n"x,1","say ""hi""\nthere"\n')) == {"a": ["x,1"], "b": ['say "hi"\nthere']}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_may_end_either_way(tmp_path: Path, end: str) -> None:
    assert values(csv_file(tmp_path, end.join(["a,b", "1,2", "3,4"]))) == {"a": ["1", "3"], "b": ["2", "4"]}


def test_a_latin_1_file_is_a_named_error(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "a,b\n1,2\n3,café\n".encode("latin-1"))
    assert f"{path}, line 3: not UTF-8 (byte 0xe9" in fault(path)


def test_a_latin_1_header_is_a_named_error(tmp_path: Path) -> None:
    assert "line 1: not UTF-8" in fault(csv_file(tmp_path, "café,b\n1,2\n".encode("latin-1")))


def test_a_quote_that_is_never_closed_is_not_one_long_value(tmp_path: Path) -> None:
    assert "never closed" in fault(csv_file(tmp_path, 'a,b\n1,2\n3,"4\n5,6\n'))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    assert "two columns are named 'a'" in fault(csv_file(tmp_path, "a,b,a\n1,2,3\n"))
    table = pa.table([[1], [2]], names=["a", "a"])
    pq.write_table(table, tmp_path / "rows.parquet")
    assert "two columns are named 'a'" in fault(tmp_path / "rows.parquet", "parquet")


def test_an_empty_file_and_a_nameless_column_are_refused(tmp_path: Path) -> None:
    assert "empty" in fault(csv_file(tmp_path, ""))
    assert "column 2 has no name" in fault(csv_file(tmp_path, "a,,c\n1,2,3\n"))


def test_a_gzipped_tsv_reads_like_a_plain_one(tmp_path: Path) -> None:
    path = csv_file(tmp_path, gzip.compress(b"a\tb\n1\t2,5\n"), "rows.tsv.gz")
    assert values(path, "tsv") == {"a": ["1"], "b": ["2,5"]}


def test_a_cut_off_gzip_file_is_a_named_error(tmp_path: Path) -> None:
    packed = gzip.compress(("a,b\n" + "1,2\n" * 5000).encode())
    path = csv_file(tmp_path, packed[:-20], "rows.csv.gz")
    assert str(path) in fault(path)


def test_a_file_that_is_no_parquet_is_a_named_error(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "a,b\n", "rows.parquet")
    assert f"{path}: not a readable Parquet file" in fault(path, "parquet")


def test_a_missing_column_names_the_nearest_one(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "clickd,b\n1,2\n")
    with pytest.raises(DataFault, match=r"column 'clicked' is missing .*'clickd'"):
        read_rows([path], "csv", ["clicked"])


def test_integer_columns_with_missing_values_stay_integers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([2**60 + 1, None], pa.int64())}), tmp_path / "rows.parquet")
    assert values(tmp_path / "rows.parquet", "parquet") == {"id": [2**60 + 1, None]}


def test_a_folder_is_read_by_name_without_the_item_table_and_other_files(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "items.csv", ".hidden.csv", "notes.txt"):
        csv_file(tmp_path, "a\n1\n", name)
    found = data_files(tmp_path, "csv", but=tmp_path / "items.csv")
    assert [path.name for path in found] == ["a.csv", "b.csv"]


def test_files_that_disagree_about_their_columns_are_refused(tmp_path: Path) -> None:
    files = [csv_file(tmp_path, "a,b\n1,2\n", "one.csv"), csv_file(tmp_path, "a\n1\n", "two.csv")]
    with pytest.raises(DataFault, match=r"two\.csv: column 'b' is missing"):
        read_rows(files, "csv", None)


def test_a_row_of_many_files_is_found_again_in_its_own(tmp_path: Path) -> None:
    files = [csv_file(tmp_path, "a\n1\n2\n", "one.csv"), csv_file(tmp_path, "a\n3\n4\n", "two.csv")]
    rows = read_rows(files, "csv", None)
    assert rows.place(1) == f"{files[0]}, line 3"
    assert rows.place(2) == f"{files[1]}, line 2"
