"""The engine: encoded rows to probabilities. TorchScript is one implementation, named in the manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch

from service.scoring import torchscript
from service.scoring.bounds import Bounds, check_rows
from service.scoring.device import FLOAT32
from service.scoring.encoded import Bag, Encoded, Floats, Ints
from service.scoring.half import Half
from service.scoring.half_files import write_half
from service.scoring.layout import Layout
from service.scoring.mapped import read_mapped, write_mapped
from service.scoring.native import AVX512, Arrays, NativeHalves, most_lanes, plan_of
from service.scoring.precision import allow, computing
from service.scoring.sizes import BLOCK, pad_index, pad_rows, padded_size
from service.scoring.torchscript import Module
from service.scoring.transfer import Array, Transfer

Inputs = tuple[torch.Tensor, torch.Tensor, list[torch.Tensor], list[torch.Tensor]]

TORCHSCRIPT = "torchscript"
_HALVES = ("user", "items", "explain")
# Items made ready at once: bounds what the arrays between the layers take, and they stay in the cache.
ITEM_BLOCK = 8_192
# From so many rows on oneDNN's layers are faster where they are at all; below, their calls cost more than they save.
FUSED_FROM = 64
ALL, USERS, ITEMS = ("user", "context", "item"), ("user", "context"), ("item",)


class Engine:
    """A frozen TorchScript module on one device; safe to call from several threads.

    With a `layout` ids are checked before they reach a GPU: IndexError then, where torch would abort the process. What
    `native` can do is done by it, while the engine computes in float32.
    """

    name = TORCHSCRIPT

    def __init__(
        self,
        frozen: Module,
        fused: Module | None,
        device: str,
        layout: Layout | None,
        native: NativeHalves | None = None,
    ) -> None:
        self.device = torch.device(device)
        self._module, self._fused, self._native = frozen, fused, native
        self._has_halves = all(hasattr(frozen, name) for name in _HALVES)
        self._has_rank = hasattr(frozen, "rank")
        self._transfer = Transfer(self.device)
        self._bounds = Bounds(layout) if layout is not None and self.device.type != "cpu" else None
        self.precision = FLOAT32
        self.precision_error: float | None = None  # against the exam, where a faster precision was measured
        self.fused_from = None if fused is None else FUSED_FROM  # rows from which layers are run fused, None for never

    @classmethod
    def load(cls, path: Path, device: str, layout: Layout | None = None, *, lanes: int | None = None) -> Engine:
        """Load, inspect and freeze the module at `path`; raises ArtifactError naming the file.

        Native code has vectors of at most so many `lanes`, by default the widest; 0 is without.
        """
        module = torchscript.read_module(path, device)
        lanes = (most_lanes() if lanes is None else lanes) if device == "cpu" else 0
        plan = plan_of(module) if lanes else None
        if plan is not None:
            return cls(torchscript.freeze(module), None, device, layout, NativeHalves(plan, lanes))
        # Frozen twice: a module's methods cannot be copied. Parameters are not copied.
        fused = torchscript.fuse(torchscript.freeze(module)) if device == "cpu" else None
        return cls(torchscript.freeze(module), fused, device, layout)

    @staticmethod
    def save_mapped(path: Path, folder: Path) -> None:
        """Write the module at `path` into `folder` for `attach`, once inspected; raises ArtifactError."""
        write_mapped(torchscript.read_module(path, "cpu"), folder)

    @classmethod
    def attach(cls, folder: Path, device: str, layout: Layout | None = None, *, lanes: int | None = None) -> Engine:
        """The engine of `save_mapped`; on the CPU its tables are the files' pages, shared by all who attach them.

        `lanes` as for `load`.
        """
        frozen, fused, native = read_mapped(folder, device, most_lanes() if lanes is None else lanes)
        return cls(frozen, fused, device, layout, native)

    @property
    def computed_by(self) -> str:
        """What does the arithmetic: "native avx512", "native avx2" or "torch"."""
        return "torch" if self._native is None else f"native {'avx512' if self._native.lanes == AVX512 else 'avx2'}"

    @property
    def has_halves(self) -> bool:
        """Whether users and items can be scored apart; a module without it answers whole rows alone."""
        return self._has_halves

    def use(self, precision: str) -> None:
        """Compute in one of PRECISIONS from now on; what it costs in accuracy is for the caller to measure."""
        allow(precision, self.device)
        self.precision = precision
        if precision != FLOAT32:
            self._native = None

    def forward(self, encoded: Encoded) -> Floats:
        """Probabilities (B,) of B encoded rows of all sides."""
        if self._native is not None:
            return self._native.forward(encoded)

        def run(start: int, end: int) -> Floats:
            block = encoded.slice(start, end)
            module, size = self._pick(block.rows)
            return self._transfer.get(module(*self._inputs(pad_rows(block, size), ALL)))[: block.rows]

        with self._computing():
            return self._in_blocks(encoded.rows, run)

    def user(self, encoded: Encoded) -> Half:
        """The halves of rows of the user's and the context's columns."""
        if self._native is not None:
            return _half(self._native.users(encoded))
        with self._computing():
            return Half(*self._module.user(*self._inputs(encoded, USERS)))

    def items(self, encoded: Encoded) -> Half:
        """The halves of rows of the items' columns."""
        return Half.concat(list(self._item_blocks(encoded)))

    def items_to(self, encoded: Encoded, folder: Path) -> None:
        """Write the halves of `items` into `folder`, block by block, for `Half.map`."""
        write_half(self._item_blocks(encoded), encoded.rows, folder)

    def _item_blocks(self, encoded: Encoded) -> Iterator[Half]:
        for start in range(0, max(1, encoded.rows), ITEM_BLOCK):
            block = encoded.slice(start, min(start + ITEM_BLOCK, encoded.rows))
            if self._native is not None:
                yield _half(self._native.items(block))
                continue
            with self._computing():
                yield Half(*self._module.items(*self._inputs(block, ITEMS)))

    def rank(self, user: Half, items: Half, rows: Ints, users: Ints) -> Floats:
        """Probabilities (P,) of pairs: row `rows[p]` of `items` with row `users[p]` of `user`."""
        if self._native is not None:
            return self._native.rank(_bare(user), _bare(items), rows, users)
        if not self._has_rank:
            return self._join(user, self.take(items, rows), users)
        self._check(rows, items.rows, users, user.rows)

        def run(start: int, end: int) -> Floats:
            module, size = self._pick(end - start)
            index = self._transfer.put((pad_index(rows[start:end], size), pad_index(users[start:end], size)))
            return self._transfer.get(module.rank(user.tensors(), items.tensors(), *index))[: end - start]

        with self._computing():
            return self._in_blocks(len(rows), run)

    def serve(self, users: Encoded, items: Half, rows: Ints, index: Ints) -> Floats:
        """`rank` of the users' halves, which are made in the same go: one copy to the device and one back.

        rows (P,) are rows of `items`, index (P,) rows of `users`.
        """
        if self._native is not None:
            return self._native.rank(self._native.users(users), _bare(items), rows, index)
        if not self._has_rank or self._bounds is None:
            return self.rank(self.user(users), items, rows, index)
        self._check(rows, items.rows, index, users.rows)
        self._bounds.check(users, USERS)
        with self._computing():
            *inputs, places, whose = self._transfer.put([*_arrays(users), rows, index])
            scores = self._module.rank(self._module.user(*_call(inputs)), items.tensors(), places, whose)
            return self._transfer.get(scores)

    def join(self, user: Half, items: Half, users: Ints) -> Floats:
        """Probabilities (P,) of pairs: row p of `items` with row `users[p]` of `user`."""
        return self.rank(user, items, np.arange(items.rows), users)

    def take(self, half: Half, rows: Ints) -> Half:
        """The chosen rows of a half in the given order."""
        if self._bounds is not None:
            check_rows(rows, half.rows)
        with torch.inference_mode():
            return half.take(self._transfer.put((rows,))[0])

    def explain(self, encoded: Encoded) -> tuple[Floats, Floats]:
        """Wide contributions (B, T) in the order of `Layout.wide_terms`, and deep logits (B,)."""
        with self._computing():
            terms, deep = self._module.explain(*self._inputs(encoded, ALL))
            return self._transfer.get(terms), self._transfer.get(deep)

    def _join(self, user: Half, items: Half, users: Ints) -> Floats:
        with self._computing():
            scores = self._module.join(user.tensors(), items.tensors(), self._transfer.put((users,))[0])
            return self._transfer.get(scores)

    def _computing(self) -> AbstractContextManager[object]:
        return computing(self.precision, self.device)

    def _pick(self, rows: int) -> tuple[Module, int]:
        """What to run so many rows with, and at what size."""
        if self._fused is None or self.fused_from is None or rows < self.fused_from:
            return self._module, rows
        return self._fused, padded_size(rows)

    def _in_blocks(self, rows: int, run: Callable[[int, int], Floats]) -> Floats:
        """What `run(start, end)` gives for the rows, on a CPU some at a time."""
        if rows <= BLOCK or self.device.type != "cpu":
            return run(0, rows)
        return np.concatenate([run(start, min(start + BLOCK, rows)) for start in range(0, rows, BLOCK)])

    def _check(self, rows: Ints, items: int, users: Ints, user: int) -> None:
        if self._bounds is not None:
            check_rows(rows, items)
            check_rows(users, user)

    def _inputs(self, encoded: Encoded, sides: tuple[str, ...]) -> Inputs:
        if self._bounds is not None:
            self._bounds.check(encoded, sides)
        return _call(self._transfer.put(_arrays(encoded)))


def probe(layout: Layout) -> Encoded:
    """Three rows that touch the ends of every table: shapes that do not fit the layout fail on them."""

    def ends(size: int) -> list[int]:
        return [0, min(1, size - 1), size - 1]

    ids = np.array([ends(column.size) for column in layout.ids], np.int64).reshape(len(layout.ids), 3).T
    bags = tuple(Bag(np.array(ends(column.size), np.int64), np.arange(4)) for column in layout.bags)
    return Encoded(np.zeros((3, len(layout.numerics)), np.float32), np.ascontiguousarray(ids), bags)


def _half(native: Arrays) -> Half:
    first, wide, values, offsets = native
    ragged = [torch.from_numpy(one) for one in (*values, *offsets)]
    return Half(torch.from_numpy(first), torch.from_numpy(wide), ragged[: len(values)], ragged[len(values) :])


def _bare(half: Half) -> Arrays:
    ragged = [one.numpy() for one in half.values], [one.numpy() for one in half.offsets]
    return Arrays(half.first.numpy(), half.wide.numpy(), *ragged)


def _arrays(encoded: Encoded) -> list[Array]:
    """Numerics, ids, values of all bags, offsets of all bags: the arguments of a module laid in a row."""
    return [
        encoded.numerics,
        encoded.ids,
        *(bag.values for bag in encoded.bags),
        *(bag.offsets for bag in encoded.bags),
    ]


def _call(tensors: list[torch.Tensor]) -> Inputs:
    """The arguments of a module from tensors in the order of `_arrays`."""
    numerics, ids, *bags = tensors
    return numerics, ids, bags[: len(bags) // 2], bags[len(bags) // 2 :]
