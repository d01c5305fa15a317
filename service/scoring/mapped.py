"""A module whose tables lie in files of their own: whoever maps them shares one copy in memory.

    frozen.pt     the frozen module; where table N was, a tensor of its shape that is one number, N, all over
    fused.pt      the same with fused layers, where torch has them
    NNNN.npy      one storage, flat; several tables may be views of one
    tables.json   for table N [file, offset, shape, strides]
    native/       the plan of native code, where the module has one: NAME.npy of each array that is no table
    native.json   for each array of the plan that is a table, its N

Frozen before it is written: to read and freeze a whole module holds the interpreter for tens of milliseconds, this for
a few at a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from service.scoring import torchscript
from service.scoring.native import NativeHalves, Plan, plan_of
from service.scoring.torchscript import Module

FROZEN, FUSED, TABLES = "frozen.pt", "fused.pt", "tables.json"
NATIVE, NATIVE_TABLES = "native", "native.json"
LARGE = 1 << 20  # bytes of a storage from which it pays to be shared
PAGE = 4096


def write_mapped(module: Module, folder: Path) -> None:
    """Write `module`, on the CPU and not frozen, into the existing `folder`; its tables are taken out on the way."""
    floats = [one for one in torchscript.tensors(module) if one.is_floating_point()]
    large = [one for one in floats if one.untyped_storage().nbytes() >= LARGE]
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage() for one in large}
    files = {address: f"{n:04d}.npy" for n, address in enumerate(storages)}
    plan = plan_of(module)
    if plan is not None:
        _write_plan(plan, {one.data_ptr(): n for n, one in enumerate(large)}, folder)
    tables: list[tuple[str, int, list[int], list[int]]] = []
    for n, one in enumerate(large):
        address = one.untyped_storage().data_ptr()
        if not (folder / files[address]).exists():
            np.save(folder / files[address], torch.empty(0, dtype=one.dtype).set_(storages[address]).numpy())
        tables.append((files[address], int(one.storage_offset()), list(one.shape), list(one.stride())))
        # Freezing works out what depends on shapes alone, so the placeholder has the table's.
        one.data = torch.full((1,), n, dtype=one.dtype).as_strided(one.shape, (0,) * one.dim())
    (folder / TABLES).write_text(json.dumps(tables), encoding="utf-8")
    torchscript.write_module(torchscript.freeze(module), folder / FROZEN)
    fused = torchscript.fuse(torchscript.freeze(module))
    if fused is not None:
        torchscript.write_module(fused, folder / FUSED)


class Mapped(NamedTuple):
    """A frozen module on a device; where it is the CPU, native code in its place, or layers that torch fuses."""

    frozen: Module
    fused: Module | None = None
    native: NativeHalves | None = None


def read_mapped(folder: Path, device: str, lanes: int) -> Mapped:
    """What `write_mapped` wrote, tables mapped on the CPU and copied to any other device; `lanes` as in Engine.load."""
    flat: dict[str, torch.Tensor] = {}
    tables: dict[float, torch.Tensor] = {}
    for n, (file, offset, shape, strides) in enumerate(json.loads((folder / TABLES).read_text(encoding="utf-8"))):
        if file not in flat:
            # Copy on write: torch warns of memory that it may not write to, and nobody writes.
            flat[file] = torch.from_numpy(np.load(folder / file, mmap_mode="c")).to(device)
        tables[n] = flat[file].as_strided(shape, strides, offset)

    def read(name: str) -> Module:
        module = torchscript.load_module(folder / name, device)
        for one in torchscript.constants(module):
            table = None if any(one.stride()) or not one.numel() else tables.get(float(one.flatten()[0]))
            if table is not None and table.shape == one.shape:
                one.data = table
        return module

    if device == "cpu" and lanes and (folder / NATIVE_TABLES).exists():
        return Mapped(read(FROZEN), native=NativeHalves(_read_plan(folder, tables), lanes))
    return Mapped(read(FROZEN), read(FUSED) if device == "cpu" and (folder / FUSED).exists() else None)


def _write_plan(plan: Plan, numbers: Mapping[int, int], folder: Path) -> None:
    tables = {}
    (folder / NATIVE).mkdir()
    for name, array in plan.items():
        number = numbers.get(array.ctypes.data) if array.nbytes >= LARGE else None
        if number is None:
            np.save(folder / NATIVE / f"{name}.npy", array)
        else:
            tables[name] = number
    (folder / NATIVE_TABLES).write_text(json.dumps(tables), encoding="utf-8")


def _read_plan(folder: Path, tables: Mapping[float, torch.Tensor]) -> Plan:
    plan = {path.stem: _load(path) for path in (folder / NATIVE).iterdir()}
    named = json.loads((folder / NATIVE_TABLES).read_text(encoding="utf-8"))
    return plan | {name: tables[number].numpy() for name, number in named.items()}


def _load(path: Path) -> npt.NDArray[Any]:
    # What is smaller than a page is not worth a mapping, and what is empty cannot have one.
    array: npt.NDArray[Any] = np.load(path, mmap_mode="r" if path.stat().st_size > PAGE else None)
    return array
