"""The epochs of a fit: batches, validation, early stopping, checkpoints between any two batches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from service.scoring.encoded import Floats, Ints
from training import metrics
from training.backprop import Backprop
from training.batches import Batch
from training.checkpoint import Checkpoints
from training.config import TrainConfig
from training.distributed import ALONE, Exchange, Group
from training.errors import FitError
from training.model import WideDeep
from training.progress import Progress
from training.run import Epoch, Run
from training.shuffle import Rows
from training.stopping import Stopping, Terminated
from training.together import Together
from training.watched import watched

_SAVE, _STOP = 1.0, 1000.0  # what a process may wish after a batch; sums over a thousand of them stay apart
SCORE_ROWS = 65_536  # rows a forward takes when nothing is learned: bounds memory, large enough not to cost time


@dataclass(frozen=True, slots=True)
class Validation:
    """What every epoch is judged by."""

    rows: Rows
    labels: Floats
    units: Ints | None


@dataclass(frozen=True, slots=True)
class Loop:
    """Takes a run to its end."""

    run: Run
    valid: Validation
    train: TrainConfig
    progress: Progress
    checkpoints: Checkpoints
    stopping: Stopping
    group: Group = ALONE

    def epochs(self) -> None:
        """Train until the last epoch or until `patience` epochs were no better.

        Raises FitError where a loss, a parameter or a score is not finite; Terminated, with a checkpoint written.
        """
        self.progress.start(len(self.run.history) * self.run.shuffle.rows + self.run.rows)
        try:
            with self.stopping.deferred(), self._learning() as (learn, exchange):
                while not self._over():
                    self._batches(learn, exchange)
                    self._validate()
        except Terminated:
            path = self._save()
            where = f"epoch {self.run.number}, {self.run.rows} rows behind"
            raise Terminated(f"checkpoint {path} written ({where}); --resume goes on from there") from None

    def _over(self) -> bool:
        best, epochs = self.run.best.epoch, len(self.run.history)
        return epochs == self.train.epochs or (best is not None and epochs - best.number >= self.train.patience)

    def _batches(self, learn: Callable[[Batch], Tensor], exchange: Exchange | Together) -> None:
        """What is left of the epoch at hand."""
        run = self.run
        run.model.train()
        started, seconds = time.perf_counter(), run.seconds
        total: Tensor | None = None
        size, count = self.train.batch_size, run.shuffle.rows
        for batch in run.shuffle.epoch():
            wish = _STOP if self.stopping.asked else _SAVE * (self.group.first and self.checkpoints.due)
            loss, wish = self._step(batch, learn, exchange, wish)
            total = loss.double() + (run.loss if total is None else total)
            rows = min(size, count - run.rows) if self.group.size > 1 else batch.rows
            run.rows += rows
            run.seconds = seconds + time.perf_counter() - started
            self.progress.batch(rows, run.shuffle.waited / run.seconds)
            if wish:
                run.loss = total.item()
                if wish >= _STOP:
                    raise Terminated
                self._save()
        run.loss = run.loss if total is None else total.item()

    def _save(self) -> Path | None:
        """Write a checkpoint with what differs between the processes."""
        own = self.group.gather_objects(self.run.own_state())
        return self.checkpoints.save({**self.run.state_dict(), "own": own}) if self.group.first else None

    @contextmanager
    def _learning(self) -> Iterator[tuple[Callable[[Batch], Tensor], Exchange | Together]]:
        """What gives the sum of the losses of some rows and adds their gradients up, here and over the processes."""
        run, size = self.run, self.train.batch_size
        exchange = Exchange(self.group, run.model.parameters())
        if not run.precision.is_full:
            yield self._autograd, exchange
            return
        like = self.valid.rows.read(0, 0)
        together = None
        if self.group.size > 1:
            together = Together.joined(run.model, size, like, self.group, run.optimizers)
        if together is None:
            yield Backprop.of(run.model, size, like) or self._autograd, exchange
            return
        try:
            yield together, together
        finally:
            together.close()

    def _step(
        self, batch: Batch, learn: Callable[[Batch], Tensor], exchange: Exchange | Together, wish: float
    ) -> tuple[Tensor, float]:
        """Learn from one batch; returns the sum of its rows' losses here, and what all processes together wish."""
        for optimizer in self.run.optimizers:
            optimizer.zero_grad()
        loss = self._backward(batch, learn) if batch.rows else torch.zeros(())
        wish = exchange.add(wish)
        self.run.schedule.step()
        self.run.precision.step()
        exchange.done()
        return loss, wish

    def _backward(self, batch: Batch, learn: Callable[[Batch], Tensor]) -> Tensor:
        """Add up the gradients of a batch, a part of it at a time; returns the sum of its rows' losses."""
        summed = torch.zeros((), dtype=torch.float64, device=batch.labels.device)
        rows = -(-batch.rows // self.train.accumulate)
        for part in (batch,) if rows == batch.rows else batch.slices(rows):
            summed += learn(part)
        return summed

    def _autograd(self, part: Batch) -> Tensor:
        with self.run.precision.computing():
            logits = self.run.model.logits(*part.inputs).float()
        # Over the whole size, not the batch's rows: a last batch of one row then weighs as one row, not as thousands.
        total = F.binary_cross_entropy_with_logits(logits, part.labels, reduction="sum")
        self.run.precision.scaled(total / self.train.batch_size).backward()  # type: ignore[no-untyped-call]  # untyped in torch
        return total.detach()

    def _validate(self) -> None:
        run = self.run
        loss, when = sum(self.group.gather_objects(run.loss)) / run.rows, f"epoch {run.number}"
        if not math.isfinite(loss) or not all(bool(p.isfinite().all()) for p in run.model.parameters()):
            raise FitError(f"{when}: the loss or a parameter is not finite; a lower learning rate may help")
        # Several processes must leave at the same batch: they hear of it there.
        with self.stopping.deferred(self.group.size > 1):
            found = finite_scores(run.model, self.valid.rows, when, self.group)
            valid = metrics.evaluate(self.valid.labels, found, self.valid.units)
        self.progress.watch(run.number, watched(run.model, run.optimizers) | run.precision.watched())
        waiting = run.shuffle.waited / run.seconds
        epoch = Epoch(run.number, loss, run.rows / run.seconds, valid, waiting)
        self.progress.epoch(epoch, run.finish(epoch))


def scores(model: WideDeep, rows: Rows, group: Group = ALONE) -> Floats:
    """Probabilities (rows,) of the model as it stands, no dropout; each process of the group scores its share."""
    model.eval()
    start, end = group.share(rows.rows)
    with torch.inference_mode():
        batches = (rows.read(n, min(n + SCORE_ROWS, end)).slices(SCORE_ROWS) for n in range(start, end, SCORE_ROWS))
        found = [model(*batch.inputs).cpu().numpy() for some in batches for batch in some]
    return group.gather_scores(np.concatenate(found) if found else np.zeros(0, np.float32), rows.rows)


def finite_scores(model: WideDeep, rows: Rows, when: str, group: Group = ALONE) -> Floats:
    """The same; raises FitError where one is not finite, as huge but finite parameters give."""
    found = scores(model, rows, group)
    if not np.isfinite(found).all():
        raise FitError(f"{when}: a score is not finite; a lower learning rate may help")
    return found
