"""What a run shows: a bar on a terminal or a line an epoch, and TensorBoard scalars."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from service.scoring.files import named
from training.config import TrainConfig
from training.gpu import Gpu, told
from training.run import Epoch

log = logging.getLogger("training")

RUNS = ".runs"  # a dot folder under the artifacts: work in progress, never listed as a version


@contextmanager
def watching(artifacts: Path) -> Iterator[None]:
    """Inside, a full disk under TensorBoard's scalars is an OSError that names their folder, and nothing beside."""
    before = threading.excepthook

    def hook(failed: threading.ExceptHookArgs) -> None:
        if not isinstance(failed.exc_value, OSError):  # that of its thread comes again where the next scalar is added
            before(failed)

    threading.excepthook = hook
    try:
        with named(artifacts / RUNS):
            yield
    finally:
        threading.excepthook = before


class Progress:
    """Shows one fit, unless `show` is off.

    Scalars go to `<artifacts>/.runs/<version>/<start>` (`tensorboard --logdir <artifacts>/.runs`).
    """

    def __init__(
        self, artifacts: Path, version: str, train: TrainConfig, rows: int, *, device: str = "cpu", show: bool = True
    ) -> None:
        folder = artifacts / RUNS / version / time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        self._scalars = SummaryWriter(str(folder)) if show else None
        self._bar = tqdm(
            total=train.epochs * rows, unit=" rows", unit_scale=True, disable=not (show and sys.stderr.isatty())
        )
        self._last = self._busy = ""
        self._gpu = Gpu(device)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
        if self._scalars is not None:
            self._scalars.close()

    def start(self, rows: int) -> None:
        """Rows that an earlier run has behind it."""
        self._bar.update(rows)
        self._bar.unpause()

    def batch(self, rows: int, waiting: float) -> None:
        """`waiting` is the share of this epoch's time that went into reading: a starved model is seen at once."""
        self._gpu.sample()
        self._bar.set_postfix_str(f"{self._last}waiting for data {waiting:.0%}{self._busy}", refresh=False)
        self._bar.update(rows)

    def watch(self, number: int, values: Mapping[str, float]) -> None:
        """Show what the model has come to after an epoch."""
        if self._scalars is not None:
            for name, value in values.items():
                self._scalars.add_scalar(name, value, number)

    def epoch(self, epoch: Epoch, better: bool) -> None:
        """Show one finished epoch."""
        if self._scalars is None:
            return
        number, valid = epoch.number, epoch.valid
        auc = "undefined" if valid["auc"] is None else f"{valid['auc']:.4f}"
        self._last = f"loss {epoch.loss:.4f}, valid auc {auc}, "
        gpu = self._gpu.taken()
        self._busy = told(gpu)
        if self._bar.disable:
            star = " (best so far)" if better else ""
            shown = (number, epoch.loss, auc, epoch.rows_per_second, 100 * epoch.waiting, self._busy, star)
            log.info("epoch %d: loss %.4f, valid auc %s, %.0f rows/s, waiting for data %.0f%%%s%s", *shown)
        values = {"train/loss": epoch.loss, "train/rows_per_second": epoch.rows_per_second}
        values |= {"train/waiting": epoch.waiting, **{f"gpu/{name}": value for name, value in gpu.items()}}
        values |= {f"valid/{name}": valid[name] for name in ("auc", "logloss", "gauc", "ne", "calibration", "ece")}
        for name, value in values.items():
            if value is not None:
                self._scalars.add_scalar(name, value, number)
