"""The items' halves in files that all processes of a host map: one copy in memory, however many read it.

first.npy (K, H) float32   wide.npy (K, 1) float32   offsets_N.npy (K + 1,) int64   values_N.i64 raw int64
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from service.scoring.half import Half

# Above it the items asked for are encoded and scored as objects are: 16 GiB are 16 million items of H = 256.
LARGEST_BYTES = 16 << 30


def too_large(items: int, bytes_per_row: float, limit: int = LARGEST_BYTES) -> bool:
    """Whether the halves of so many items take more than `limit` bytes; see `Half.bytes_per_row`."""
    return items * bytes_per_row > limit


def write_half(blocks: Iterator[Half], rows: int, folder: Path) -> None:
    """Write blocks of together `rows` rows into the existing `folder`; holds one block in memory at a time."""
    block: Half | None = next(blocks)
    assert block is not None  # there is at least one
    first, wide = (
        _create(folder / f"{name}.npy", np.float32, (rows, part.size(1)))
        for name, part in (("first", block.first), ("wide", block.wide))
    )
    offsets = [_create(folder / f"offsets_{n}.npy", np.int64, (rows + 1,)) for n in range(len(block.offsets))]
    values = [(folder / f"values_{n}.i64").open("wb") for n in range(len(block.values))]
    ends, start = [0] * len(values), 0
    try:
        while block is not None:
            end = start + block.rows
            first[start:end], wide[start:end] = block.first.cpu().numpy(), block.wide.cpu().numpy()
            for n, file in enumerate(values):
                file.write(block.values[n].cpu().numpy().tobytes())
                offsets[n][start + 1 : end + 1] = block.offsets[n][1:].cpu().numpy() + ends[n]
                ends[n] += block.values[n].numel()
            start, block = end, next(blocks, None)
    finally:
        for file in values:
            file.close()


def map_half(folder: Path, device: str = "cpu") -> Half:
    """The halves of `write_half`: on the CPU the files' own pages, else a copy on the device."""

    def mapped(name: str) -> torch.Tensor:
        # Copy on write: torch warns of memory that it may not write to, and nobody writes.
        return torch.from_numpy(np.load(folder / name, mmap_mode="c")).to(device)

    crosses = range(len(list(folder.glob("offsets_*.npy"))))
    values = [torch.from_numpy(_raw(folder / f"values_{n}.i64")).to(device) for n in crosses]
    return Half(mapped("first.npy"), mapped("wide.npy"), values, [mapped(f"offsets_{n}.npy") for n in crosses])


def _create(path: Path, dtype: type[np.generic], shape: tuple[int, ...]) -> npt.NDArray[np.generic]:
    if 0 in shape:  # nothing that could be mapped
        np.save(path, np.zeros(shape, dtype))
        return np.zeros(shape, dtype)
    created: npt.NDArray[np.generic] = np.lib.format.open_memmap(path, "w+", dtype, shape)
    return created


def _raw(path: Path) -> npt.NDArray[np.int64]:
    if not path.stat().st_size:
        return np.zeros(0, np.int64)
    return np.memmap(path, np.int64, "c")
