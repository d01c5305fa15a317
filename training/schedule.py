"""The learning rate over time: constant, or cut where progress ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer

from training.config import TrainConfig

PLATEAU_FACTOR = 0.1  # FuxiCTR's; one cut is enough to tell whether a smaller step still finds something


class Schedule:
    """Sets the optimizers' learning rates: `step` before every batch, `epoch` after every validation."""

    def __init__(self, optimizers: Sequence[Optimizer], train: TrainConfig) -> None:
        self._groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self._rates = [float(group["lr"]) for group in self._groups]
        self._plateau = train.schedule == "plateau"
        self._cut = 1.0

    def step(self) -> None:
        """Set the rates for the batch that comes."""
        for group, rate in zip(self._groups, self._rates, strict=True):
            group["lr"] = rate * self._cut

    def epoch(self, better: bool) -> None:
        """Hear whether the epoch was the best so far."""
        if self._plateau and not better:
            self._cut *= PLATEAU_FACTOR

    def state_dict(self) -> dict[str, Any]:
        return {"cut": self._cut}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._cut = float(state["cut"])
