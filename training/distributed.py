"""Several processes that train one model: the same weights in each, every batch shared out, gradients added up.

`torchrun --nproc-per-node N -m training fit …` starts them. A gradient of a table travels as the rows that a batch
touched, never as the table; layers' gradients travel as one flat tensor. All processes add the same numbers in the same
order, so that their weights stay equal to the last bit and nothing is ever sent back.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from service.scoring.encoded import Floats
from training.config import ConfigError
from training.optimizers import row_sums

_WAIT = timedelta(hours=24)  # the first process reads and encodes for all
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Group:
    """This process among `size`; number 0 writes, shows and publishes."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def one_by_one(self, work: Callable[[], T]) -> T:
        """Do it in the first process, then in the others, which find in the cache what it wrote."""
        if self.size == 1:
            return work()
        found = work() if self.first else None
        self.gather_objects(None)  # waits for the first
        return work() if found is None else found

    def share(self, rows: int) -> tuple[int, int]:
        """Which of `rows` rows are this process's: start and end."""
        return rows * self.rank // self.size, rows * (self.rank + 1) // self.size

    def counts(self, mine: Sequence[int]) -> list[list[int]]:
        """Some numbers of every process."""
        sent = torch.tensor(mine)
        found = [torch.empty_like(sent) for _ in range(self.size)]
        dist.all_gather(found, sent)
        return [one.tolist() for one in found]

    def gather(self, part: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """The parts of all processes in their order, `lengths` those of their first dimensions."""
        padded = part
        if len(part) < max(lengths):
            padded = part.new_zeros((max(lengths), *part.shape[1:]))
            padded[: len(part)] = part
        found = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(found, padded)
        return [one[:length] for one, length in zip(found, lengths, strict=True)]

    def gather_scores(self, mine: Floats, rows: int) -> Floats:
        """Scores (rows,) from each process's share of them."""
        if self.size == 1:
            return mine
        shares = [Group(rank, self.size).share(rows) for rank in range(self.size)]
        return torch.cat(self.gather(torch.from_numpy(mine), [end - start for start, end in shares])).numpy()

    def gather_objects(self, mine: Any) -> list[Any]:
        """One object of each process, in their order."""
        if self.size == 1:
            return [mine]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, mine)
        return found


ALONE = Group()


@contextmanager
def joined(device: str) -> Iterator[Group]:
    """The group that torchrun's environment names, a group of one without it; raises ConfigError."""
    size = os.environ.get("WORLD_SIZE") or "1"
    if size in ("0", "1"):
        yield ALONE
        return
    if not dist.is_gloo_available():
        raise ConfigError("torch was built without gloo: several processes cannot train together")
    if device.startswith("cuda"):
        _take_gpu(torch.cuda.device_count())
    # torch.optim imports it at the first step. Imported while a group lives, it holds that group for good, and the
    # group's threads then meet an interpreter that ends and abort the process: test_no_thread_of_a_group_outlives_it.
    importlib.import_module("torch._dynamo")
    dist.init_process_group(backend_of(device), timeout=_WAIT)
    try:
        yield Group(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def backend_of(device: str) -> str:
    """What carries tensors between the processes: gradients by NCCL from GPU to GPU; counts, scores and objects, which
    lie in the machine's memory, by gloo, so that a wait for hours keeps no GPU busy."""
    return "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"


def _take_gpu(count: int) -> None:
    """Make the GPU of this process's number on its machine the one that "cuda" means here."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if not dist.is_nccl_available():
        raise ConfigError("torch was built without NCCL: several processes cannot train on GPUs together")
    if local >= count:
        raise ConfigError(f"process {local + 1} of this machine finds {count} GPUs; each process needs its own")
    torch.cuda.set_device(local)


class Exchange:
    """Adds up the gradients of some parameters over the processes of a group."""

    def __init__(self, group: Group, parameters: Iterable[nn.Parameter]) -> None:
        self._group, self._parameters = group, [one for one in parameters if one.numel()]
        self._sparse: list[bool] = []

    def add(self, flag: float) -> float:
        """Replace each gradient by its sum; returns the sum of `flag`, which travels with them.

        A process whose part of the batch is empty has no gradient, and adds nothing.
        """
        if self._group.size == 1:
            return flag
        if not self._sparse:
            self._sparse = self._agree()
        kinds = list(zip(self._parameters, self._sparse, strict=True))
        self._add_touched([parameter for parameter, sparse in kinds if sparse])
        return self._add_flat([parameter for parameter, sparse in kinds if not sparse], flag)

    def done(self) -> None:
        """The optimizers have stepped: each process its own copy of all parameters."""

    def _agree(self) -> list[bool]:
        """Which gradients are sparse, as those say that have one."""
        mine = [None if one.grad is None else one.grad.is_sparse for one in self._parameters]
        return [any(said) for said in zip(*self._group.gather_objects(mine), strict=True)]

    def _add_flat(self, parameters: list[nn.Parameter], flag: float) -> float:
        grads = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
        device = self._parameters[0].device
        flat = torch.cat([*(grad.flatten() for grad in grads), torch.tensor([flag], device=device)])
        dist.all_reduce(flat)
        for parameter, summed in zip(
            parameters, torch.split(flat[:-1], [one.numel() for one in parameters]), strict=True
        ):
            parameter.grad = summed.view_as(parameter)
        return float(flat[-1])

    def _add_touched(self, parameters: list[nn.Parameter]) -> None:
        if not parameters:
            return
        parts = [_touched(parameter) for parameter in parameters]
        counts = self._group.counts([len(rows) for rows, _ in parts])
        # All tables in one message: rows as the bits of 32-bit integers, then values.
        sent = [one for rows, values in parts for one in (rows.int().view(torch.float32), values.flatten())]
        sizes = [
            [size for n, one in enumerate(parameters) for size in (of[n], of[n] * one[0].numel())] for of in counts
        ]
        gathered = self._group.gather(torch.cat(sent), [sum(of) for of in sizes])
        found = [torch.split(one, of) for one, of in zip(gathered, sizes, strict=True)]
        for n, parameter in enumerate(parameters):
            index = torch.cat([of[2 * n].view(torch.int32) for of in found]).long()[None]
            values = torch.cat([of[2 * n + 1] for of in found]).view(-1, *parameter.shape[1:])
            parameter.grad = torch.sparse_coo_tensor(index, values, parameter.shape, check_invariants=False)


def _touched(parameter: nn.Parameter) -> tuple[Tensor, Tensor]:
    """The rows of a table that have a gradient, and what it is."""
    if parameter.grad is None:
        rows = torch.zeros(0, dtype=torch.int64, device=parameter.device)
        return rows, parameter.new_zeros((0, *parameter.shape[1:])).detach()
    return row_sums(parameter.grad)
