"""The engine: encoded rows to probabilities. TorchScript is one implementation, named in the manifest."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch

from service.scoring.encoded import Bag, Encoded, Floats, Ints
from service.scoring.files import ArtifactError
from service.scoring.half import Half
from service.scoring.layout import Layout

TORCHSCRIPT = "torchscript"
# What a module may export beside `forward`; see training/halves.py. Freezing keeps them only when they are named.
HALVES = ("user", "items", "join", "explain")
# Items made ready at once: bounds what the arrays between the layers take.
ITEM_BLOCK = 65_536


class Engine:
    """A frozen TorchScript module on one device; safe to call from several threads."""

    name = TORCHSCRIPT

    def __init__(self, module: torch.jit.ScriptModule, device: str) -> None:
        self._module = module
        self._has_halves = all(hasattr(module, name) for name in HALVES)
        self.device = torch.device(device)

    @classmethod
    def load(cls, path: Path, device: str) -> Engine:
        """Load, inspect and freeze the module at `path`; raises ArtifactError naming the file."""
        try:
            module = _load(path, device)
        except FileNotFoundError:
            raise ArtifactError(f"{path.name}: the file is missing") from None
        except Exception as error:  # noqa: BLE001  # damaged archives raise whatever the reader met
            reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            raise ArtifactError(f"{path.name}: no TorchScript module ({reason})") from None
        _inspect(module, path.name)
        return cls(_freeze(module), device)

    @property
    def has_halves(self) -> bool:
        """Whether users and items can be scored apart; a module without it answers whole rows alone."""
        return self._has_halves

    def forward(self, encoded: Encoded) -> Floats:
        """Probabilities (B,) of B encoded rows of all sides."""
        with torch.inference_mode():
            scores: torch.Tensor = self._module(*self._inputs(encoded))
            return np.asarray(scores.cpu().numpy(), np.float32)

    def user(self, encoded: Encoded) -> Half:
        """The halves of rows of the user's and the context's columns."""
        with torch.inference_mode():
            return Half(*self._module.user(*self._inputs(encoded)))

    def items(self, encoded: Encoded) -> Half:
        """The halves of rows of the items' columns, made block by block."""
        with torch.inference_mode():
            if encoded.rows <= ITEM_BLOCK:
                return Half(*self._module.items(*self._inputs(encoded)))
            starts = range(0, encoded.rows, ITEM_BLOCK)
            blocks = (encoded.take(np.arange(start, min(start + ITEM_BLOCK, encoded.rows))) for start in starts)
            return Half.concat([Half(*self._module.items(*self._inputs(block))) for block in blocks])

    def join(self, user: Half, items: Half, users: Ints) -> Floats:
        """Probabilities (P,) of pairs: row p of `items` with row `users[p]` of `user`."""
        with torch.inference_mode():
            index = torch.from_numpy(users).to(self.device)
            scores: torch.Tensor = self._module.join(user.tensors(), items.tensors(), index)
            return np.asarray(scores.cpu().numpy(), np.float32)

    def take(self, half: Half, rows: Ints) -> Half:
        with torch.inference_mode():
            return half.take(torch.from_numpy(rows).to(self.device))

    def explain(self, encoded: Encoded) -> tuple[Floats, Floats]:
        """Wide contributions (B, T) in the order of `Layout.wide_terms`, and deep logits (B,)."""
        with torch.inference_mode():
            terms, deep = self._module.explain(*self._inputs(encoded))
            return np.asarray(terms.cpu().numpy(), np.float32), np.asarray(deep.cpu().numpy(), np.float32)

    def _inputs(self, encoded: Encoded) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        values = [torch.from_numpy(bag.values).to(self.device) for bag in encoded.bags]
        offsets = [torch.from_numpy(bag.offsets).to(self.device) for bag in encoded.bags]
        return (
            torch.from_numpy(encoded.numerics).to(self.device),
            torch.from_numpy(encoded.ids).to(self.device),
            values,
            offsets,
        )


def probe(layout: Layout) -> Encoded:
    """Three rows that touch the ends of every table: shapes that do not fit the layout fail on them."""

    def ends(size: int) -> list[int]:
        return [0, min(1, size - 1), size - 1]

    ids = np.array([ends(column.size) for column in layout.ids], np.int64).reshape(len(layout.ids), 3).T
    bags = tuple(Bag(np.array(ends(column.size), np.int64), np.arange(4)) for column in layout.bags)
    return Encoded(np.zeros((3, len(layout.numerics)), np.float32), np.ascontiguousarray(ids), bags)


def _load(path: Path, device: str) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        # TorchScript is deprecated in torch; this is the one place that reads it, and the manifest names the engine.
        warnings.filterwarnings("ignore", message=".*torch.jit.load.*", category=DeprecationWarning)
        return torch.jit.load(path, map_location=device)  # type: ignore[no-any-return,no-untyped-call]  # untyped in torch


def _inspect(module: torch.jit.ScriptModule, name: str) -> None:
    if any(part.training for part in module.modules()):
        raise ArtifactError(f"{name}: the module is in training mode; export it after eval()")
    for key, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ArtifactError(f"{name}: parameter '{key}' is not finite")


def _freeze(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        # As above: deprecated with TorchScript itself, used in this one place.
        warnings.filterwarnings("ignore", message=".*torch.jit.freeze.*", category=DeprecationWarning)
        exported = [name for name in HALVES if hasattr(module, name)]
        return torch.jit.freeze(module.eval(), preserved_attrs=exported)  # type: ignore[no-any-return]  # untyped in torch
