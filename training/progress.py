"""What a run shows: a bar on a terminal or a line an epoch, and TensorBoard scalars."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from training.config import TrainConfig

log = logging.getLogger("training")

RUNS = ".runs"  # a dot folder under the artifacts: work in progress, never listed as a version


class Progress:
    """Shows one fit; scalars go to `<artifacts>/.runs/<version>/<start>` (`tensorboard --logdir <artifacts>/.runs`)."""

    def __init__(self, artifacts: Path, version: str, train: TrainConfig, rows: int) -> None:
        folder = artifacts / RUNS / version / time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        self._scalars = SummaryWriter(str(folder))
        self._bar = tqdm(total=train.epochs * rows, unit=" rows", unit_scale=True, disable=not sys.stderr.isatty())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
        self._scalars.close()

    def batch(self, rows: int) -> None:
        self._bar.update(rows)

    def watch(self, number: int, values: Mapping[str, float]) -> None:
        """Show what the model has come to after an epoch."""
        for name, value in values.items():
            self._scalars.add_scalar(name, value, number)

    def epoch(self, number: int, loss: float, rows_per_second: float, valid: dict[str, Any], better: bool) -> None:
        """Show one finished epoch."""
        auc = "undefined" if valid["auc"] is None else f"{valid['auc']:.4f}"
        self._bar.set_postfix_str(f"loss {loss:.4f}, valid auc {auc}")
        if self._bar.disable:
            star = " (best so far)" if better else ""
            log.info("epoch %d: loss %.4f, valid auc %s, %.0f rows/s%s", number, loss, auc, rows_per_second, star)
        values = {"train/loss": loss, "train/rows_per_second": rows_per_second}
        values |= {f"valid/{name}": valid[name] for name in ("auc", "logloss", "gauc", "ne", "calibration", "ece")}
        for name, value in values.items():
            if value is not None:
                self._scalars.add_scalar(name, value, number)
