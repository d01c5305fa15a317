"""Mixed precision: what layers compute in, and for float16 the scale that keeps small gradients from vanishing.

Weights, losses, sums and gradients of weights stay float32. float16 ends at 65,504 and loses what is below 6e-8, so the
loss is scaled up before gradients are taken (Micikevicius et al. 2018), and gradients are scaled down before a step; a
batch in which one of them is not finite is skipped, and the scale is halved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

DTYPES = {"off": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class _Together(Optimizer):
    """Several optimizers as one, for a scaler that judges each optimizer by its own gradients alone.

    It would step the tables of a batch whose layers overflowed, and the two parts of the model would drift apart.
    """

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:  # no state of its own: Optimizer's is not made
        self._optimizers = optimizers
        self.steps = 0

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]  # an attribute there
        return [group for optimizer in self._optimizers for group in optimizer.param_groups]

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure is ever given here
        self.steps += 1
        for optimizer in self._optimizers:
            optimizer.step()


class Precision:
    """The precision of a fit on `device`; `amp` is off, bf16 or fp16."""

    def __init__(self, amp: str, device: str, optimizers: Sequence[Optimizer]) -> None:
        self._device, self._amp = device, amp
        self._optimizers = _Together(optimizers)
        self._scaler = torch.amp.GradScaler(device, enabled=amp == "fp16")
        # It makes its scale on the device of the first loss, which an empty share of a batch does not have.
        self._scaler.scale(torch.zeros((), device=device if self._scaler.is_enabled() else "cpu"))
        self._batches = 0

    @property
    def is_full(self) -> bool:
        """Whether everything is float32."""
        return self._amp == "off"

    def computing(self) -> torch.autocast:
        """Within it, layers compute in this precision."""
        return torch.autocast(self._device, DTYPES[self._amp], enabled=self._amp != "off")

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss to take gradients of."""
        return self._scaler.scale(loss)

    def step(self) -> None:
        """Step all optimizers with the gradients at hand, those of tables included, or none of them."""
        self._batches += 1
        self._scaler.step(self._optimizers)
        self._scaler.update()

    def watched(self) -> dict[str, float]:
        """The scale, and the share of this process's batches that were skipped."""
        if not self._scaler.is_enabled():
            return {}
        skipped = (self._batches - self._optimizers.steps) / max(1, self._batches)
        return {"amp/scale": self._scaler.get_scale(), "amp/skipped": skipped}

    def state_dict(self) -> dict[str, Any]:
        return self._scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            self._scaler.load_state_dict(state)
