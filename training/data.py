"""A config's data, checked: raw rows with their labels, the parts they fall into, and the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.scoring.columns import Texts
from service.scoring.encoded import Encoded, Ints
from service.scoring.features import FeatureEncoder
from service.scoring.values import DataError
from training.cache import BLOCK_ROWS
from training.config import Config
from training.errors import DataFault
from training.items import ItemTable, newest_rows, read_items
from training.reading import Rows, data_files, file_hash
from training.roles import Wanted, read_roles, stored_roles
from training.source import Source
from training.split import PARTS, Cuts, cut, draws

Floats64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Dataset:
    """All rows read: features as they stand in the files (CSV: text), items joined."""

    rows: Rows
    labels: npt.NDArray[np.float32]  # (rows,) 0 or 1
    units: Ints | None  # (rows,) a number for each unit, -1 where blank; None without a unit column
    keys: Texts | None  # item keys
    positions: Floats64  # (rows,) what the split cuts
    times: Floats64 | None
    items: ItemTable | None
    files: Mapping[str, str]  # path under PATH → sha256
    notes: tuple[str, ...]  # what a user should know, counted

    @property
    def table(self) -> pa.Table:
        return self.rows.table

    def fault(self, error: DataError, rows: Ints) -> DataFault:
        """The fault of a column of the chosen `rows`, with the file and line that it came from."""
        if error.row is None:
            return self.rows.fault(error)
        return self.rows.fault(DataError(error.column, error.reason, int(rows[error.row])))

    def column(self, name: str, rows: Ints) -> pa.Table:
        """One column (rows,) of ascending rows, a block at a time: what stands together is not copied."""
        table = self.table.select([name] if name in self.table.column_names else [])
        parts = []
        for start in range(0, table.num_rows, BLOCK_ROWS):
            inside = rows[slice(*np.searchsorted(rows, [start, start + BLOCK_ROWS]))] - start
            block = table.slice(start, BLOCK_ROWS)
            parts.append(block if len(inside) == block.num_rows else block.take(pa.array(inside)))
        return pa.concat_tables(parts) if parts else table

    def encode_block(self, encoder: FeatureEncoder, start: int, end: int) -> Encoded:
        """Rows start .. end - 1 as tensors' arrays; raises DataFault."""
        try:
            return encoder.encode_table(self.table.slice(start, end - start))
        except DataError as error:
            row = None if error.row is None else error.row + start
            raise self.rows.fault(DataError(error.column, error.reason, row)) from None

    def encode(self, encoder: FeatureEncoder, rows: Ints) -> Encoded:
        """The chosen rows as tensors' arrays; raises DataFault."""
        # Of the span that they lie in alone: a take from the whole may copy a mapped table into memory.
        first, end = (int(rows.min()), int(rows.max()) + 1) if len(rows) else (0, 0)
        try:
            return encoder.encode_table(self.table.slice(first, end - first).take(pa.array(rows - first)))
        except DataError as error:
            raise self.fault(error, rows) from None

    def cut(self, config: Config) -> Cuts:
        """Where this data is cut into parts; raises DataFault where a part would be empty."""
        return cut(config.split, self.positions, config.train.seed)

    def catalog(self, config: Config, train: Ints) -> pa.Table | None:
        """The item table, or each item's newest training row; None without an item key.

        Raises DataFault where it would hold no item.
        """
        if self.items is not None:
            return self.items.table
        if self.keys is None:
            return None
        if not (self.keys.codes[train] >= 0).any():
            raise DataFault(f"column '{config.data.item}', the item key, is blank in every row of the training part")
        return newest_rows(self.table, self.keys, self.times, train, config.schema)


def read_dataset(path: Path, config: Config, *, seed: int, part: str = "all", cache: Path | None = None) -> Dataset:
    """Read PATH as the config says, or with kind "files" only one part's folder; raises DataFault.

    `seed` is that of a random split: the config's in training, the version's own afterwards. With a folder `cache` the
    rows are streamed into it once, and the dataset's table and arrays are mapped; else all is read into memory.
    """
    data = config.data
    home = path if path.is_dir() else path.parent
    item_path = home / data.items if data.items else None
    folders = _files(path, config, item_path, part)
    items = read_items(item_path, data.item, config.schema) if item_path and data.item else None
    joined = _item_columns(config, items)
    files = {str(file.relative_to(home)): file_hash(file) for file in (*folders, *([item_path] if item_path else []))}
    source = Source(tuple(folders), data.format, tuple(_row_columns(config, joined)), data.columns)
    wanted = Wanted(data, config.split.kind == "time", items, tuple(joined))
    roles = read_roles(source, wanted) if cache is None else stored_roles(source, wanted, files, cache)
    return Dataset(
        rows=roles.rows,
        labels=roles.labels,
        units=roles.units,
        keys=roles.keys,
        positions=_positions(config.split.kind, roles.rows, roles.times, list(folders.values()), seed),
        times=roles.times,
        items=items,
        files=files,
        notes=roles.notes(wanted, item_path),
    )


def check_classes(labels: npt.NDArray[np.float32], column: str) -> None:
    """Both classes are required in the training part."""
    if len(labels) and labels.min() == labels.max():
        raise DataFault(
            f"column '{column}': both classes required, every label of the training part is {int(labels[0])}"
        )


def _files(path: Path, config: Config, item_path: Path | None, part: str) -> dict[Path, int]:
    """The files to read, each with the number of its part where the split is by files (else 0)."""
    if config.split.kind != "files":
        return dict.fromkeys(data_files(path, config.data.format, but=item_path), 0)
    if not path.is_dir():
        raise DataFault(f'{path}: split.kind = "files" needs a folder with {", ".join(f"{name}/" for name in PARTS)}')
    return {
        file: number
        for number, name in enumerate(PARTS)
        if part in ("all", name)
        for file in data_files(path / name, config.data.format, but=item_path)
    }


def _positions(kind: str, rows: Rows, times: Floats64 | None, numbers: list[int], seed: int) -> Floats64:
    """What the split cuts, see split.Cuts."""
    if kind == "time" and times is not None:
        return times
    if kind == "files":
        return np.repeat(np.array(numbers, np.float64), np.diff((0, *rows.ends)))
    return draws(rows.table.num_rows, seed)


def _item_columns(config: Config, items: ItemTable | None) -> list[str]:
    """Item features that the item table has: these come from there, as the catalog's will in serving."""
    if items is None:
        return []
    item_side = [feature.name for feature in config.schema.of_side("item") if feature.name != config.data.item]
    return [name for name in item_side if name in items.table.column_names]


def _row_columns(config: Config, joined: list[str]) -> list[str]:
    roles = (config.data.label, config.data.unit, config.data.item, config.data.timestamp)
    features = [feature.name for feature in config.schema.features if feature.name not in joined]
    return [name for name in (*roles, *features) if name]
