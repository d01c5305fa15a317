"""Optimizers: FTRL for the wide part, Adagrad or Adam for the deep one; a large table changes where a batch touched it.

Tables have sparse gradients, so a step's cost follows the batch and not the table, and an id that a batch lacks keeps
its weights and its optimizer state. Adam steps small tables as a whole all the same. torch's own Adagrad and
SparseAdam promise as much by building sparse tensors out of sparse tensors; gathering the rows is shorter and several
times faster. Layers use torch's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from training.config import TrainConfig
from training.model import WideDeep
from training.rows import Lookups, Place, native

# Where the config says 0. FTRL's rate is per example, the others' per batch mean.
LEARNING_RATES = {"ftrl": 0.05, "adagrad": 0.02, "adam": 0.001, "sgd": 0.1}
# Rows from which a table's Adagrad keeps one number a row. A step on 106,496 look-ups of width 16 takes 5.4 ms instead
# of 6.6 there, and 10 ms instead of 21 at a million rows.
ROWWISE_FROM = 100_000
# Rows up to which Adam steps the whole of a table: a batch of 4096 touches most of them, and finding out which costs as
# much as the step (4.6 ms by rows, 2.9 ms whole, of 5,400 rows of width 10). It also learns better, with embedding_l2
# above all: rare ids fall back towards 0 between the rows that hold them.
WHOLE_UP_TO = 16_384

Group = dict[str, Any]


class RowOptimizer(Optimizer):
    """Steps parameters by rows: those of a sparse gradient alone, all of a dense one."""

    slots: tuple[str, ...] = ()  # names of the state tensors, each of the parameter's shape and 0 at first
    rowwise = False  # one number of state a row instead
    whole_up_to = 0  # rows of a table that is stepped whole, whatever a batch touches
    # Of a table that processes share, first and last + 1 of the rows that this one steps where the whole is stepped.
    parts: Mapping[Tensor, Sequence[tuple[int, int]]] = MappingProxyType({})
    # A group's "decay" λ adds λ·w to the gradient of the rows that are stepped.

    def update(self, w: Tensor, grad: Tensor, state: list[Tensor], group: Group, step: int) -> Tensor:
        """New weights of some rows; `state` is changed in place."""
        raise NotImplementedError

    def change(self, rows: Tensor, grad: Tensor, w: Tensor, state: list[Tensor], group: Group, step: int) -> None:
        """The same of distinct rows (U,) of the whole weights, natively; `grad` (U, D) may be changed."""
        raise NotImplementedError

    def begin(self, weight: Tensor, state: list[Tensor], group: Group) -> None:
        """Make the fresh `state` fit weights that are not those of a new model."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure is ever given here
        """Apply the gradients at hand."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None and weight.numel():
                    self._step(weight, weight.grad, group)

    def _prepare(self, weight: Tensor, group: Group) -> dict[str, Any]:
        """The state of a parameter, made where it has none yet."""
        state: dict[str, Any] = self.state[weight]
        if not state:
            state["step"] = 0
            for name in self.slots:
                state[name] = torch.zeros_like(weight[:, :1] if self.rowwise else weight)
            self.begin(weight, [state[name] for name in self.slots], group)
        return state

    def has(self, weight: Tensor) -> bool:
        """Whether this optimizer steps a parameter."""
        return any(weight is one for group in self.param_groups for one in group["params"])

    @torch.no_grad()
    def prepared(self, weight: Tensor) -> dict[str, Tensor]:
        """The state tensors of a parameter that it steps, made where there are none yet."""
        group = next(group for group in self.param_groups if any(weight is one for one in group["params"]))
        state = self._prepare(weight, group)
        return {name: state[name] for name in self.slots}

    def is_whole(self, weight: Tensor) -> bool:
        """Whether it steps a table whole, whatever rows a batch touched."""
        return self.has(weight) and weight.size(0) <= self.whole_up_to

    def _step(self, weight: Tensor, grad: Tensor, group: Group) -> None:
        state = self._prepare(weight, group)
        state["step"] += 1
        whole = [state[name] for name in self.slots]
        decay = group.get("decay", 0.0)
        plain = native is not None and all(map(_is_plain, (weight, *whole))) and grad.dtype == torch.float32
        if grad.is_sparse and weight.size(0) <= self.whole_up_to:
            grad = torch.zeros_like(weight).index_copy_(0, *row_sums(grad))  # in an order that no run changes
            if plain:
                for start, end in self.parts.get(weight, [(0, weight.size(0))]):
                    rows = torch.arange(start, end)
                    self.change(rows, grad[start:end], weight, whole, group, state["step"])
                return
        if not grad.is_sparse:
            grad = grad.add(weight, alpha=decay) if decay else grad
            weight.copy_(self.update(weight, grad, whole, group, state["step"]))
            return
        rows, values = row_sums(grad)
        if plain and values.is_contiguous():
            self.change(rows, values, weight, whole, group, state["step"])
            return
        old, touched = weight.index_select(0, rows), [tensor.index_select(0, rows) for tensor in whole]
        if decay:
            values = values.add_(old, alpha=decay)
        weight.index_copy_(0, rows, self.update(old, values, touched, group, state["step"]))
        for tensor, changed in zip(whole, touched, strict=True):
            tensor.index_copy_(0, rows, changed)


def row_sums(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct rows (U,) of a sparse gradient and their summed gradients (U, D).

    What `coalesce` does, several times faster: natively, or 32-bit keys are sorted and a bag sums each run of equal
    ones. Rows stand in any order.
    """
    keys, values = grad._indices()[0], grad._values()
    if grad.is_coalesced():
        return keys, values
    if native is not None and values.dim() == 2 and _is_plain(values):
        return Lookups(keys[:, None], []).sums([Place(0, 0)], values, values.size(1), mean=False)
    short = keys.to(torch.int32) if grad.size(0) <= torch.iinfo(torch.int32).max else keys
    ordered, order = short.sort(stable=True)
    first = torch.ones(len(ordered), dtype=torch.bool, device=ordered.device)
    torch.ne(ordered[1:], ordered[:-1], out=first[1:])
    starts = first.nonzero().squeeze(1)
    sums = F.embedding_bag(order, values, starts, mode="sum") if len(order) else values
    return ordered.index_select(0, starts).long(), sums


def _is_plain(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu" and tensor.is_contiguous()


def _where(*tensors: Tensor) -> tuple[int, ...]:
    """Addresses of rows and gradients, their number and width, addresses of weights and state, as _rows.c has them."""
    rows, grad, *rest = tensors
    return (rows.data_ptr(), grad.data_ptr(), len(rows), grad.size(1), *(tensor.data_ptr() for tensor in rest))


class Ftrl(RowOptimizer):
    """FTRL-proximal, per coordinate (McMahan et al. 2013, Algorithm 1): L1 pins what carries no evidence to exact zero.

        σ = (√(n + g²) − √n) / α;  z += g − σ·w;  n += g²
        w = 0 where |z| ≤ l1, else −(z − sign(z)·l1) / ((β + √n) / α + l2)

    l1 and l2 are per example, as in the paper: `examples` is the number of rows that a gradient is averaged over, and
    undoes it. (TensorFlow doubles l2: its l2 is half of this one.) z begins where it gives the weights at
    hand: at 0 for 0.
    """

    slots = ("z", "n")

    def __init__(
        self, params: Iterable[nn.Parameter], *, lr: float, l1: float, l2: float, beta: float = 1.0, examples: int = 1
    ) -> None:
        super().__init__(params, {"lr": lr, "l1": l1, "l2": l2, "beta": beta, "examples": examples})

    def begin(self, weight: Tensor, state: list[Tensor], group: Group) -> None:
        state[0].copy_(-weight * (group["beta"] / group["lr"] + group["l2"]) - weight.sign() * group["l1"])

    def update(self, w: Tensor, grad: Tensor, state: list[Tensor], group: Group, step: int) -> Tensor:
        z, n = state
        g = grad * group["examples"]
        root = (n + g * g).sqrt()
        z.add_(g - (root - n.sqrt()) / group["lr"] * w)
        n.addcmul_(g, g)
        shrunk = (z.sign() * group["l1"] - z) / ((group["beta"] + root) / group["lr"] + group["l2"])
        return torch.where(z.abs() <= group["l1"], torch.zeros_like(z), shrunk)

    def change(self, rows: Tensor, grad: Tensor, w: Tensor, state: list[Tensor], group: Group, step: int) -> None:
        values = (group["lr"], group["l1"], group["l2"], group["beta"], group["examples"])
        native.ftrl(*_where(rows, grad, w, *state), *values, torch.get_num_threads())


class RowAdagrad(RowOptimizer):
    """Adagrad (Duchi et al. 2011): w −= α·g / (√Σg² + ε)."""

    slots = ("sum",)

    def __init__(self, params: Iterable[nn.Parameter], *, lr: float, eps: float = 1e-10) -> None:
        super().__init__(params, {"lr": lr, "eps": eps})

    def update(self, w: Tensor, grad: Tensor, state: list[Tensor], group: Group, step: int) -> Tensor:
        (total,) = state
        total.addcmul_(grad, grad)
        return w.addcdiv(grad, total.sqrt() + group["eps"], value=-group["lr"])

    def change(self, rows: Tensor, grad: Tensor, w: Tensor, state: list[Tensor], group: Group, step: int) -> None:
        width = 1 if self.rowwise else grad.size(1)
        values = (group["lr"], group["eps"], group.get("decay", 0.0))
        native.adagrad(*_where(rows, grad, w, *state), width, *values, torch.get_num_threads())


class RowwiseAdagrad(RowAdagrad):
    """Adagrad with one sum a row, of the mean squared gradient: a table's state is as small as one of its columns.

    What DLRM trains its tables with (Naumov et al. 2019). For tables whose state would cost more than their batch.
    """

    rowwise = True

    def update(self, w: Tensor, grad: Tensor, state: list[Tensor], group: Group, step: int) -> Tensor:
        (total,) = state
        total.add_(grad.square().mean(1, keepdim=True))
        return w.addcdiv(grad, total.sqrt() + group["eps"], value=-group["lr"])


class RowAdam(RowOptimizer):
    """Adam (Kingma & Ba 2015); of a table of more than `whole_up_to` rows lazily: moments of a row that a batch lacks
    stand still, as in torch's SparseAdam."""

    slots = ("mean", "square")

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        whole_up_to: int = WHOLE_UP_TO,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})
        self.whole_up_to = whole_up_to

    def update(self, w: Tensor, grad: Tensor, state: list[Tensor], group: Group, step: int) -> Tensor:
        mean, square = state
        first, second = group["betas"]
        mean.lerp_(grad, 1 - first)
        square.lerp_(grad * grad, 1 - second)
        root = (square / (1 - second**step)).sqrt() + group["eps"]
        return w.addcdiv(mean, root, value=-group["lr"] / (1 - first**step))

    def change(self, rows: Tensor, grad: Tensor, w: Tensor, state: list[Tensor], group: Group, step: int) -> None:
        first, second = group["betas"]
        values = (group["lr"] / (1 - first**step), 1 - first, 1 - second, 1 / (1 - second**step), group["eps"])
        decay = group.get("decay", 0.0)
        native.adam(*_where(rows, grad, w, *state), *values, decay, torch.get_num_threads())


def build_optimizers(model: WideDeep, train: TrainConfig) -> list[Optimizer]:
    """One for the wide part, one for the embedding tables, one for the layers."""
    wide_lr = train.wide_lr or LEARNING_RATES[train.wide_optimizer]
    deep_lr = train.deep_lr or LEARNING_RATES[train.deep_optimizer]
    wide, tables = list(model.wide.parameters()), list(model.tables.parameters())
    layers = list(model.mlp.parameters())
    built: list[Optimizer] = []
    if train.wide_optimizer == "ftrl":
        built.append(Ftrl(wide, lr=wide_lr, l1=train.l1, l2=train.l2, examples=train.batch_size))
    elif train.wide_optimizer == "sgd":
        built.append(torch.optim.SGD(wide, lr=wide_lr))
    else:
        built.append(_by_rows(train.wide_optimizer, wide, wide_lr))
    large = [table for table in tables if train.deep_optimizer == "adagrad" and table.size(0) >= ROWWISE_FROM]
    small = [table for table in tables if not any(table is one for one in large)]
    by_rows = [RowwiseAdagrad(large, lr=deep_lr)] if large else []
    for optimizer in (*by_rows, *([_by_rows(train.deep_optimizer, small, deep_lr)] if small else [])):
        optimizer.param_groups[0]["decay"] = train.embedding_l2
        built.append(optimizer)
    fused = layers[0].device.type == "cpu"
    if train.deep_optimizer == "adagrad":
        return [*built, torch.optim.Adagrad(layers, lr=deep_lr, fused=fused)]
    return [*built, torch.optim.Adam(layers, lr=deep_lr, fused=fused)]


def _by_rows(name: str, params: list[nn.Parameter], lr: float) -> Optimizer:
    return RowAdagrad(params, lr=lr) if name == "adagrad" else RowAdam(params, lr=lr)
