"""The encoded data of earlier runs: arrays and Arrow tables in files that are mapped, never loaded.

A folder is named by a hash of all that its content depends on, so it is right or absent, and may be removed at any
time. It is written aside, under a name with the writer's process id, and renamed when it is whole: a run that is killed
leaves rubbish that the next one clears away.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.scoring.encoded import Bag, Encoded
from service.scoring.files import ArtifactError, named, read_json, write_json

log = logging.getLogger("training")

CACHE = ".cache"
FORMAT = 2  # rises with every change of what is written, or of how values are encoded
BLOCK_ROWS = 131_072  # read and encoded at once: some dozen MB at 40 columns
_META = "meta.json"

Array = npt.NDArray[Any]


def key_of(**parts: Any) -> str:
    """The name of what depends on `parts` (JSON values)."""
    text = json.dumps({"format": FORMAT, **parts}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def obtain(home: Path, key: str, write: Callable[[Path], Mapping[str, Any]]) -> tuple[Path, dict[str, Any]]:
    """The folder `key` under `home` and what was noted of it; `write` fills it, and gives the notes, where it is not.

    What `write` raises passes, and leaves nothing.
    """
    folder = home / key
    if (notes := _whole(folder)) is not None:
        return folder, notes
    with named(home):
        home.mkdir(parents=True, exist_ok=True)
        _clear(home)
        aside = home / f"{key}.part-{os.getpid()}"
        aside.mkdir()
        try:
            notes = dict(write(aside))
            write_json(aside / _META, {"notes": notes, "sizes": _sizes(aside)})
            try:
                aside.rename(folder)
            except OSError:  # another run was faster
                if _whole(folder) is None:
                    raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return folder, notes


def _whole(folder: Path) -> dict[str, Any] | None:
    """The notes of a folder whose files all have the sizes they were written with; any other is removed."""
    if not folder.is_dir():
        return None
    try:
        meta = read_json(folder / _META)
        notes: dict[str, Any] = meta["notes"]
        if meta["sizes"] == _sizes(folder):
            return notes
    except (ArtifactError, KeyError, TypeError):
        pass  # meta.json itself is damaged
    log.warning("warning: %s is damaged and is made anew", folder)
    shutil.rmtree(folder)
    return None


def _sizes(folder: Path) -> dict[str, int]:
    files = (path for path in folder.rglob("*") if path.is_file() and path != folder / _META)
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def _clear(home: Path) -> None:
    """Remove what runs left that are no more."""
    for path in home.glob("*.part-*"):
        if not _lives(int(path.name.rpartition("-")[2])):
            shutil.rmtree(path, ignore_errors=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class Growing:
    """An array in a file that grows at its end."""

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self._file: BinaryIO = path.open("wb")
        self._dtype = np.dtype(dtype)

    def append(self, values: Array) -> None:
        self._file.write(np.ascontiguousarray(values, self._dtype).data)

    def close(self) -> None:
        self._file.close()


def mapped(path: Path, dtype: npt.DTypeLike, shape: tuple[int, ...] = (-1,)) -> Array:
    """The file as an array whose memory is the file's own pages."""
    if not path.stat().st_size:
        return np.zeros([0 if size == -1 else size for size in shape], dtype)
    # "c": torch takes no read-only array; nobody writes, so no page is ever copied.
    return np.memmap(path, dtype, "c").view(np.ndarray).reshape(shape)


def map_table(path: Path) -> pa.Table:
    """An Arrow file as a table whose columns are the file's own pages."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


class EncodedFiles:
    """Encoded rows written one block after the other: ids as int32, numbers as float32, bags as values and ends."""

    def __init__(self, folder: Path, bags: int) -> None:
        folder.mkdir()
        self._numerics = Growing(folder / "numerics", np.float32)
        self._ids = Growing(folder / "ids", np.int32)
        self._values = [Growing(folder / f"bag_{n}_values", np.int32) for n in range(bags)]
        self._offsets = [Growing(folder / f"bag_{n}_offsets", np.int64) for n in range(bags)]
        self._ends = [0] * bags
        for offsets in self._offsets:
            offsets.append(np.zeros(1, np.int64))

    def append(self, rows: Encoded) -> None:
        self._numerics.append(rows.numerics)
        self._ids.append(rows.ids)
        for n, bag in enumerate(rows.bags):
            self._values[n].append(bag.values)
            self._offsets[n].append(bag.offsets[1:] + self._ends[n])
            self._ends[n] += int(bag.offsets[-1])

    def close(self) -> None:
        for file in (self._numerics, self._ids, *self._values, *self._offsets):
            file.close()


def map_rows(folder: Path, rows: int, numerics: int, ids: int, bags: int) -> Encoded:
    """What `EncodedFiles` wrote; ids are int32."""
    return Encoded(
        mapped(folder / "numerics", np.float32, (rows, numerics)),
        mapped(folder / "ids", np.int32, (rows, ids)),
        tuple(
            Bag(mapped(folder / f"bag_{n}_values", np.int32), mapped(folder / f"bag_{n}_offsets", np.int64))
            for n in range(bags)
        ),
    )
