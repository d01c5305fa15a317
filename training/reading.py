"""Files to Arrow tables: Parquet as typed, CSV and TSV as text; what is broken is named with its file and line."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from service.scoring.schema import nearest
from service.scoring.values import DataError
from training.errors import DataFault

SUFFIXES = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".csv.gz"),
    "tsv": (".tsv", ".tsv.gz"),
}
DELIMITERS = {"csv": ",", "tsv": "\t"}
_BLOCK = 16 << 20  # a CSV row must fit into one block
csv.field_size_limit(2**31 - 1)  # Arrow has read such a field; looking for its line must not fail


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of some files, one after the other; `ends[f]` is the first row after file f."""

    table: pa.Table
    files: tuple[Path, ...]
    ends: tuple[int, ...]
    format: str
    headless: bool = False  # text files whose first record is a row

    def place(self, row: int) -> str:
        """Where a row stands, as a user finds it: the file and the line (text) or row number (Parquet)."""
        number = next(n for n, end in enumerate(self.ends) if row < end)
        inside = row - (self.ends[number - 1] if number else 0)
        path = self.files[number]
        if self.format == "parquet":
            return f"{path}, row {inside + 1}"
        for record, (line, _) in enumerate(_records(path, DELIMITERS[self.format])):
            if record == inside + (not self.headless):  # else record 0 is the header
                return f"{path}, line {line}"
        return str(path)

    def fault(self, error: DataError) -> DataFault:
        """A column's fault with the file and line that it came from."""
        place = str(self.files[0]) if error.row is None else self.place(error.row)
        return DataFault(f"{place}, column '{error.column}': {error.reason}")


def data_files(path: Path, format_: str, *, but: Path | None = None) -> list[Path]:
    """The file at `path`, or the files of that format in the folder `path`, by name; `but` is never among them."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataFault(f"{path}: no such file or folder")
    found = sorted(
        file
        for file in path.iterdir()
        if file.name.endswith(SUFFIXES[format_]) and file.is_file() and not file.name.startswith(".") and file != but
    )
    if not found:
        raise DataFault(f"{path}: holds no {format_} file ({', '.join(SUFFIXES[format_])})")
    return found


def read_rows(
    files: Sequence[Path],
    format_: str,
    columns: Iterable[str] | None,
    optional: Iterable[str] = (),
    names: Sequence[str] = (),
) -> Rows:
    """Read `columns` (None: all) of every file; those in `optional` may be absent. Raises DataFault.

    `names` are those of all columns, of text files without a header.
    """
    wanted = None if columns is None else list(dict.fromkeys(columns))
    tables = [_read(path, format_, wanted, frozenset(optional), names) for path in files]
    found = {name for table in tables for name in table.column_names}
    for path, table in zip(files, tables, strict=True):
        if lacking := sorted(found - set(table.column_names)):
            raise DataFault(f"{path}: column '{lacking[0]}' is missing, other files have it")
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataFault(f"{files[0].parent}: the files' column types do not agree: {_one_line(error)}") from None
    ends, total = [], 0
    for part in tables:
        total += part.num_rows
        ends.append(total)
    return Rows(table, tuple(files), tuple(ends), format_, bool(names))


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def format_of(path: Path) -> str:
    """The format that a file's name says."""
    for format_, suffixes in SUFFIXES.items():
        if path.name.endswith(suffixes):
            return format_
    raise DataFault(f"{path}: the name must end in {', '.join(s for group in SUFFIXES.values() for s in group)}")


def _read(
    path: Path, format_: str, wanted: list[str] | None, optional: frozenset[str], names: Sequence[str]
) -> pa.Table:
    with read_faults(path):
        if format_ == "parquet":
            return _read_parquet(path, wanted, optional)
        blocks = list(text_blocks(path, DELIMITERS[format_], wanted, optional, names))
        return pa.concat_tables(blocks)


@contextmanager
def read_faults(path: Path) -> Iterator[None]:
    """What reading a file raises, said with its name."""
    try:
        yield
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except pa.ArrowException as error:
        raise DataFault(f"{path}: not a readable Parquet file: {_one_line(error)}") from None
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise DataFault(f"{path}: cannot be read: {_one_line(error)}") from None


def _read_parquet(path: Path, wanted: list[str] | None, optional: frozenset[str]) -> pa.Table:
    with pyarrow.parquet.ParquetFile(path) as file:
        return _in_plain_types(file.read(_choose(path, file.schema_arrow.names, wanted, optional)))


def parquet_blocks(path: Path, wanted: list[str], rows: int) -> Iterator[pa.Table]:
    """The same, some `rows` at a time; at least one block."""
    # Without pre_buffer and with a buffer, pages are read as they are needed and not row groups as a whole.
    with pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        names = _choose(path, file.schema_arrow.names, wanted, frozenset())
        for batch in file.iter_batches(rows, columns=names):
            yield _in_plain_types(pa.Table.from_batches([batch]).select(names))
        if not file.metadata.num_rows:
            yield _in_plain_types(file.read(names))


def parquet_schema(path: Path, wanted: list[str]) -> pa.Schema:
    """The plain types of the columns `wanted`."""
    with read_faults(path), pyarrow.parquet.ParquetFile(path) as file:
        names = _choose(path, file.schema_arrow.names, wanted, frozenset())
        return pa.schema([(name, _plain(file.schema_arrow.field(name).type)) for name in names])


def _in_plain_types(table: pa.Table) -> pa.Table:
    for n, field in enumerate(table.schema):
        if (plain := _plain(field.type)) != field.type:
            table = table.set_column(n, field.name, table.column(n).cast(plain))
    return table


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type to read a column as: two files' dictionaries need not agree, and Arrow cannot take rows of views."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(_plain(kind.value_type))
    return kind


def text_blocks(
    path: Path, delimiter: str, wanted: list[str] | None, optional: frozenset[str], names: Sequence[str] = ()
) -> Iterator[pa.Table]:
    """The rows of a text file, a block at a time, all columns as text; at least one block."""
    header = list(names) if names else next((fields for _, fields in _records(path, delimiter)), None)
    if header is None:
        raise DataFault(f"{path}: the file is empty, not even a header")
    chosen = _choose(path, header, wanted, optional)
    # The last column is always read: an open quote at the end of the file shows there.
    reading = [*chosen, header[-1]] if header[-1] not in chosen else chosen
    last: pa.ChunkedArray | None = None
    try:
        with _open(path) as file, _reader(file, delimiter, header, reading, bool(names)) as reader:
            for batch in reader:
                table = pa.Table.from_batches([batch])
                last = table.column(header[-1]) if batch.num_rows else last
                yield table.select(chosen)
            if last is None:
                yield reader.schema.empty_table().select(chosen)
    except pa.ArrowInvalid as error:
        if names and "Empty CSV" in str(error):
            raise DataFault(f"{path}: the file is empty") from None
        raise _text_fault(path, delimiter, len(header), error) from None
    if last is not None:
        _check_closed(path, last)


def _reader(file: BinaryIO, delimiter: str, header: list[str], reading: list[str], headless: bool) -> Any:
    return pa.csv.open_csv(
        file,
        read_options=pa.csv.ReadOptions(block_size=_BLOCK, column_names=header if headless else None),
        parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.string()),
            include_columns=reading,
            null_values=[""],  # a blank is missing, NA is a value
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )


def _choose(path: Path, names: list[str], wanted: list[str] | None, optional: frozenset[str]) -> list[str]:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataFault(f"{path}: two columns are named '{twice[0]}'")
    if "" in names:
        raise DataFault(f"{path}: column {names.index('') + 1} has no name")
    if wanted is None:
        return names
    for name in wanted:
        if name not in names and name not in optional:
            raise DataFault(f"{path}: column '{name}' is missing{nearest(name, names)}")
    return [name for name in wanted if name in names]


def _open(path: Path) -> BinaryIO:
    """The file's bytes, unpacked where they are gzipped, whatever its name says."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path)) if packed else path.open("rb")


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """First line and fields of each record of a text file, blank lines left out."""
    with io.TextIOWrapper(_open(path), encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, delimiter=delimiter)
        line = 1
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1


def _text_fault(path: Path, delimiter: str, expected: int, error: Exception) -> DataFault:
    """Why Arrow refused a text file, found again record by record to name the line."""
    if "UTF8" in str(error):
        return _not_utf8(path)
    try:
        for line, fields in _records(path, delimiter):
            if len(fields) != expected:
                return DataFault(f"{path}, line {line}: expected {expected} fields, found {len(fields)}")
    except UnicodeDecodeError:
        return _not_utf8(path)
    except csv.Error as fault:
        return DataFault(f"{path}: {fault}")
    return DataFault(f"{path}: {_one_line(error)}")


def _not_utf8(path: Path) -> DataFault:
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                return DataFault(f"{path}, line {number}: not UTF-8 (byte 0x{byte:02x}; is the file Latin-1?)")
    return DataFault(f"{path}: not UTF-8")


def _check_closed(path: Path, last: pa.ChunkedArray) -> None:
    """A quote that is opened and never closed swallows the rest of the file into one value."""
    value = last[-1].as_py() if len(last) else None
    if value is None or "\n" not in value:
        return
    with _open(path) as file:
        tail = b""
        while block := file.read(1 << 20):
            tail = (tail + block)[-4:]
    if not tail.rstrip(b"\r\n").endswith(b'"'):
        raise DataFault(f"{path}: a quote is opened and never closed before the end of the file")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
