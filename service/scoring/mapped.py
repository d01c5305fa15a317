"""A module whose tables lie in files of their own: whoever maps them shares one copy in memory.

module.pt     the module without its large tensors
NNNN.npy      one large tensor's storage, flat
tables.json   parameter -> [file, offset, shape, strides]; several parameters may be views of one storage
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from service.scoring import torchscript

MODULE, TABLES = "module.pt", "tables.json"
LARGE = 1 << 20  # bytes of a storage from which it pays to be shared


def write(module: torchscript.Module, folder: Path) -> None:
    """Write `module` into the existing `folder`; its large tensors are emptied on the way."""
    files: dict[int, str] = {}
    tables: dict[str, list[object]] = {}
    kept: list[torch.Tensor] = []  # an emptied tensor's storage must live on: its address is what tells it apart
    for name, tensor in _tensors(module).items():
        storage = tensor.untyped_storage()
        if storage.nbytes() < LARGE:
            continue
        if storage.data_ptr() not in files:
            files[storage.data_ptr()] = f"{len(files):04d}.npy"
            flat = torch.empty(0, dtype=tensor.dtype).set_(storage)
            kept.append(flat)
            np.save(folder / files[storage.data_ptr()], flat.numpy())
        file = files[storage.data_ptr()]
        tables[name] = [file, tensor.storage_offset(), list(tensor.shape), list(tensor.stride())]
    for name, tensor in _tensors(module).items():
        if name in tables:
            tensor.data = torch.empty(0, dtype=tensor.dtype)
    torchscript.write_module(module, folder / MODULE)
    (folder / TABLES).write_text(json.dumps(tables), encoding="utf-8")


def read(folder: Path, device: str) -> torchscript.Module:
    """The module of `write`, its large tensors mapped on the CPU and copied to any other device."""
    module = torchscript.read_module(folder / MODULE, device)
    tables = json.loads((folder / TABLES).read_text(encoding="utf-8"))
    flat: dict[str, torch.Tensor] = {}
    for name, tensor in _tensors(module).items():
        if name in tables:
            file, offset, shape, strides = tables[name]
            if file not in flat:
                # Copy on write: torch warns of memory that it may not write to, and nobody writes.
                flat[file] = torch.from_numpy(np.load(folder / file, mmap_mode="c")).to(device)
            tensor.data = flat[file].as_strided(shape, strides, offset)
    return module


def _tensors(module: torchscript.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}
