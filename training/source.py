"""The files of one data set as a source of rows: all at once, or a block at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from service.scoring.values import DataError
from training.cache import BLOCK_ROWS
from training.errors import DataFault
from training.reading import DELIMITERS, Rows, parquet_blocks, parquet_schema, read_faults, read_rows, text_blocks


@dataclass(frozen=True, slots=True)
class Source:
    """Files of one format, and the columns wanted of each; `names` are those of text files without a header."""

    files: tuple[Path, ...]
    format: str
    columns: tuple[str, ...]
    names: tuple[str, ...] = ()

    def read(self) -> Rows:
        """All rows in memory; raises DataFault."""
        return read_rows(self.files, self.format, self.columns, names=self.names)

    def blocks(self) -> Iterator[tuple[int, pa.Table]]:
        """(number of the file, some of its rows), all of the types that `read` gives; raises DataFault."""
        wanted = list(dict.fromkeys(self.columns))
        schema = self._schema(wanted)
        for number, path in enumerate(self.files):
            with read_faults(path):
                if self.format == "parquet":
                    blocks = parquet_blocks(path, wanted, BLOCK_ROWS)
                else:
                    blocks = text_blocks(path, DELIMITERS[self.format], wanted, frozenset(), self.names)
                for table in blocks:
                    yield number, table if schema is None else _as_all(table, schema, path)

    def total(self) -> int | None:
        """How many rows there are, where files say so."""
        if self.format != "parquet":
            return None
        rows = 0
        for path in self.files:
            with read_faults(path):
                rows += int(pyarrow.parquet.read_metadata(path).num_rows)
        return rows

    def fault(self, error: DataError, ends: Sequence[int], number: int, done: int) -> DataFault:
        """The fault of a block of file `number` with `done` rows before it, `ends` those of the files before."""
        row = None if error.row is None else error.row + done
        # The file's end is not known yet; whatever lies behind it is not asked for.
        here = (*ends[:number], done + BLOCK_ROWS * 1000)
        rows = Rows(pa.table({}), self.files[: number + 1], here, self.format, bool(self.names))
        return rows.fault(DataError(error.column, error.reason, row))

    def _schema(self, wanted: list[str]) -> pa.Schema | None:
        if self.format != "parquet":
            return None
        whole: pa.Schema | None = None
        for path in self.files:
            schema = parquet_schema(path, wanted)
            try:
                whole = schema if whole is None else pa.unify_schemas([whole, schema], promote_options="permissive")
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                reason = " ".join(str(error).split())[:200]
                raise DataFault(f"{path}: column types do not agree with those of the files before: {reason}") from None
        return whole


def _as_all(table: pa.Table, schema: pa.Schema, path: Path) -> pa.Table:
    """The table in the types of all files together; raises DataFault where a value of this one has no place there."""
    try:
        return table.cast(schema)
    except pa.ArrowInvalid as error:
        mine = "', '".join(field.name for field in schema if table.schema.field(field.name).type != field.type)
        reason = " ".join(str(error).split())[:200]
        raise DataFault(f"{path}: column '{mine}' is of another type in other files: {reason}") from None
