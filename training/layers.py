"""Loss and gradients of the MLP by hand, a block of rows at a time.

Autograd walks through each layer with the whole batch, whose activations no cache holds, and makes each of them anew.
A block of rows goes forward and back at once, in memory that a cache holds, by products that use the whole vector
width (products.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.products import backward_input, backward_weight, linear_relu

BLOCK = 512  # rows; a layer of 256 takes 512 KB


class Layers:
    """An MLP of Linear, ReLU and Dropout that ends in one logit; `size` is what a batch's gradient is averaged over."""

    def __init__(self, mlp: nn.Sequential, size: int) -> None:
        self._size = size
        self._linears = [layer for layer in mlp if isinstance(layer, nn.Linear)]
        self._drops = [layer.p for layer in mlp if isinstance(layer, nn.Dropout)]
        self._grads = [(torch.empty_like(linear.weight), torch.empty_like(linear.bias)) for linear in self._linears]

    @staticmethod
    def fit(mlp: nn.Sequential) -> bool:
        """Whether an MLP is such a one."""
        kinds = [type(layer) for layer in mlp]
        count = len(kinds) // 3
        return kinds == [nn.Linear, nn.ReLU, nn.Dropout] * count + [nn.Linear]

    @torch.no_grad()
    def learn(self, x: Tensor, wide: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Sum of the losses of B rows, and the gradient (B,) of their logits; x (B, ·) becomes its own gradient.

        `wide` (B,) is added to the MLP's logits, and becomes them. Parameters get what autograd would give them.
        """
        fresh = [linear.weight.grad is None for linear in self._linears]
        for linear, (weight, bias) in zip(self._linears, self._grads, strict=True):
            if linear.weight.grad is None:
                linear.weight.grad, linear.bias.grad = weight, bias
        grad = torch.empty_like(wide)
        for start in range(0, len(wide), BLOCK):
            rows = slice(start, start + BLOCK)
            active = self._forward(x[rows])
            self._head(active[-1], wide[rows], labels[rows], grad[rows])
            self._backward(active, grad[rows], start > 0 or not fresh[0])
        return F.binary_cross_entropy_with_logits(wide, labels, reduction="sum"), grad

    def _forward(self, x: Tensor) -> list[Tensor]:
        """What enters each layer."""
        entering = [x]
        for linear, drop in zip(self._linears, self._drops, strict=False):
            active = linear_relu(entering[-1], linear.weight, linear.bias)
            if drop:
                active.mul_(torch.empty_like(active).bernoulli_(1 - drop)).mul_(1 / (1 - drop))
            entering.append(active)
        return entering

    def _head(self, active: Tensor, logits: Tensor, labels: Tensor, grad: Tensor) -> None:
        last = self._linears[-1]
        logits.add_(last.bias).addmv_(active, last.weight[0])
        torch.sub(torch.sigmoid(logits), labels, out=grad).div_(self._size)

    def _backward(self, entering: Sequence[Tensor], grad: Tensor, adding: bool) -> None:
        """Gradients of a block from those of its logits; `adding` to what the layers have."""
        last = self._linears[-1]
        _add(last, grad[:, None], entering[-1], adding)
        back = grad[:, None] * last.weight
        for n in range(len(self._linears) - 2, -1, -1):
            linear, drop = self._linears[n], self._drops[n]
            torch.ops.aten.threshold_backward.grad_input(back, entering[n + 1], 0, grad_input=back)
            if drop:
                back.mul_(1 / (1 - drop))
            _add(linear, back, entering[n], adding)
            back = backward_input(back, linear.weight)
        entering[0].copy_(back)


def _add(linear: nn.Linear, back: Tensor, entering: Tensor, adding: bool) -> None:
    for parameter, found in ((linear.weight, backward_weight(back, entering)), (linear.bias, back.sum(0))):
        assert parameter.grad is not None  # `learn` saw to it
        if adding:
            parameter.grad.add_(found)
        else:
            parameter.grad.copy_(found)
