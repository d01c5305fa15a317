"""The learning rate over time: warm-up over the first steps, then constant, cosine, or cut where progress ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer

from training.config import TrainConfig

PLATEAU_FACTOR = 0.1  # FuxiCTR's; one cut is enough to tell whether a smaller step still finds something


class Schedule:
    """Sets the optimizers' learning rates: `step` before every batch, `epoch` after every validation."""

    def __init__(self, optimizers: Sequence[Optimizer], train: TrainConfig, steps_per_epoch: int) -> None:
        self._groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self._rates = [float(group["lr"]) for group in self._groups]
        self._train = train
        self._total = max(1, train.epochs * steps_per_epoch)
        self._step, self._cut = 0, 1.0

    @property
    def factor(self) -> float:
        """What the learning rates are multiplied by at the coming step."""
        warm = min(1.0, (self._step + 1) / self._train.warmup) if self._train.warmup else 1.0
        if self._train.schedule == "cosine":
            return warm * 0.5 * (1 + math.cos(math.pi * min(1.0, self._step / self._total)))
        return warm * self._cut

    def step(self) -> None:
        """Set the rates for the batch that comes."""
        factor = self.factor
        for group, rate in zip(self._groups, self._rates, strict=True):
            group["lr"] = rate * factor
        self._step += 1

    def epoch(self, better: bool) -> None:
        """Hear whether the epoch was the best so far."""
        if self._train.schedule == "plateau" and not better:
            self._cut *= PLATEAU_FACTOR

    def state_dict(self) -> dict[str, Any]:
        return {"step": self._step, "cut": self._cut}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._step, self._cut = int(state["step"]), float(state["cut"])
