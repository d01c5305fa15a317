"""What changes while a fit goes on: weights, optimizers, the place in the data, the best epoch so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from training.model import WideDeep
from training.precision import Precision
from training.schedule import Schedule
from training.shuffle import Shuffle


@dataclass(frozen=True, slots=True)
class Epoch:
    """What one epoch came to."""

    number: int
    loss: float  # mean log loss over the training rows as they were met, dropout and unknown ids included
    rows_per_second: float
    valid: dict[str, Any]
    waiting: float = 0.0  # share of the time that went into reading and shuffling


@dataclass(slots=True)
class Best:
    """The epoch to publish: the best validation AUC, or the last epoch where that is undefined."""

    epoch: Epoch | None = None
    state: dict[str, Tensor] = field(default_factory=dict)

    def offer(self, epoch: Epoch, model: WideDeep) -> bool:
        """Keep the epoch if it is better; says whether it was."""
        auc = epoch.valid["auc"]
        best = self.epoch.valid["auc"] if self.epoch else None
        if self.epoch is not None and best is not None and (auc is None or auc <= best):
            return False
        # On the CPU: a second copy of the tables may be more than a GPU has left.
        self.epoch, self.state = epoch, {k: v.to("cpu", copy=True) for k, v in model.state_dict().items()}
        return True


@dataclass(slots=True)
class Run:
    """A fit in progress. `state_dict` and each process's `own_state`, taken between two batches,
    are all that it takes to go on to the same end."""

    model: WideDeep
    optimizers: Sequence[Optimizer]
    schedule: Schedule
    shuffle: Shuffle
    precision: Precision
    best: Best = field(default_factory=Best)
    history: list[Epoch] = field(default_factory=list)
    loss: float = 0.0  # sum over the rows of the epoch at hand
    rows: int = 0  # of the epoch at hand that are behind
    seconds: float = 0.0  # that they took

    @property
    def number(self) -> int:
        """The epoch at hand, from 1."""
        return len(self.history) + 1

    def finish(self, epoch: Epoch) -> bool:
        """Keep what the epoch at hand came to, and begin the next; says whether it was the best."""
        self.history.append(epoch)
        self.loss, self.rows, self.seconds = 0.0, 0, 0.0
        self.shuffle.advance()
        better = self.best.offer(epoch, self.model)
        self.schedule.epoch(better)
        return better

    def state_dict(self) -> dict[str, Any]:
        """Plain values and tensors, which a loader that runs no code can read."""
        return {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "schedule": self.schedule.state_dict(),
            "shuffle": self.shuffle.state_dict(),
            "precision": self.precision.state_dict(),
            "best": {"epoch": self.best.epoch and asdict(self.best.epoch), "state": self.best.state},
            "history": [asdict(epoch) for epoch in self.history],
            "done": {"rows": self.rows, "seconds": self.seconds},
        }

    def own_state(self) -> dict[str, Any]:
        """What each process of a group has for itself: dropout's random state and its rows' loss."""
        cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None  # of this process's device alone
        return {"loss": self.loss, "random": torch.get_rng_state(), "random_cuda": cuda}

    def load_state_dict(self, state: dict[str, Any], rank: int = 0) -> None:
        """Go on from a state whose tensors are on the CPU; `rank` is this process's place in the list `own` of what the
        processes had."""
        self.model.load_state_dict(state["model"])
        for optimizer, one in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(one)
        self.schedule.load_state_dict(state["schedule"])
        self.shuffle.load_state_dict(state["shuffle"])
        self.precision.load_state_dict(state["precision"])
        best = state["best"]
        self.best = Best(best["epoch"] and Epoch(**best["epoch"]), best["state"])
        self.history = [Epoch(**one) for one in state["history"]]
        self.rows, self.seconds = (state["done"][name] for name in ("rows", "seconds"))
        own = state["own"][rank]
        self.loss = own["loss"]
        torch.set_rng_state(own["random"])
        if own["random_cuda"] is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(own["random_cuda"])
