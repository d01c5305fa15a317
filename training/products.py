"""The matrix products of a linear layer, forward and backward.

By oneDNN where torch has it: its kernels use the whole vector width of any processor, while MKL's, which torch takes
otherwise, use half of it on AMD's (on a Zen 5 core 115 of 256 GFLOP/s). Which is taken depends on nothing but torch, so
that a run resumed is the run that was never stopped.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Below so many multiplications oneDNN's call costs more (12 us) than its kernels save.
_FROM = 2**18
_fused = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None  # type: ignore[no-untyped-call]  # untyped in torch


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """max(0, x Wᵀ + b) (B, O) of x (B, I) and W (O, I)."""
    if _fused is None or len(x) * weight.numel() < _FROM:
        return torch.addmm(bias, x, weight.t()).relu_()
    return _call(x, weight, bias, "relu")


def backward_input(grad: Tensor, weight: Tensor) -> Tensor:
    """The gradient (B, I) of a layer's input from that of its output, grad (B, O)."""
    if _fused is None or len(grad) * weight.numel() < _FROM:
        return grad @ weight
    return _call(grad, weight.t(), None, "none")


def backward_weight(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient (O, I) of a layer's weight."""
    if _fused is None or grad.numel() * x.size(1) < _FROM:
        return grad.t() @ x
    return _call(grad.t(), x.t(), None, "none")


def _call(x: Tensor, weight: Tensor, bias: Tensor | None, after: str) -> Tensor:
    assert _fused is not None  # asked before
    product: Tensor = _fused(x, weight, bias, after, [], "")
    return product
