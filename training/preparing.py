"""What a run learns from: rows → parts → the encoder that serving will use → encoded parts. No weights yet."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.scoring.encoded import Encoded, Ints
from service.scoring.features import FeatureEncoder
from training import export
from training.config import Config
from training.data import Dataset, check_classes, read_dataset
from training.distributed import Group
from training.encoding import encode_parts, fit_encoder
from training.errors import DataFault
from training.leakage.report import LeakageReport, look_for_leaks
from training.negatives import kept_rows
from training.split import Cuts
from training.unknowns import unknown_shares

log = logging.getLogger("training")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows, and all that was fitted on them before the first step; nothing on a row outside `parts["train"]`.

    `shares` say how often an id of each column is to be taken for unknown. `leakage` is None but in the first process.
    """

    data: Dataset
    cuts: Cuts
    parts: Mapping[str, Ints]
    catalog: pa.Table | None
    encoder: FeatureEncoder
    encoded: Mapping[str, Encoded]
    notes: list[str]
    leakage: LeakageReport | None
    shares: tuple[list[float], list[float]]
    by_time: bool

    def units(self, part: str) -> Ints | None:
        """The unit of each row of a part."""
        return None if self.data.units is None else self.data.units[self.parts[part]]

    def labels(self, part: str) -> npt.NDArray[np.float32]:
        return self.data.labels[self.parts[part]]

    def times(self, part: str) -> npt.NDArray[np.float64] | None:
        """When each row of a part was, where the parts follow each other in time."""
        return self.data.times[self.parts[part]] if self.by_time and self.data.times is not None else None


def prepare(path: Path, config: Config, cache: Path, group: Group, *, device: str, strict: bool) -> Prepared:
    """Read, split, fit and encode, and look for leaks; raises DataFault, and LeakFault where `strict`."""
    data = group.one_by_one(lambda: read_dataset(path, config, seed=config.train.seed, cache=cache))
    cuts = data.cut(config)
    parts = cuts.parts(data.positions)
    check_classes(data.labels[parts["train"]], config.data.label)
    catalog = data.catalog(config, parts["train"])
    parts["train"] = kept_rows(parts["train"], data.labels, config.train.negatives, config.train.seed)
    if not (data.labels[parts["train"]] == 0).any():
        raise DataFault(f"[train] negatives = {config.train.negatives:g} leaves no negative row to train on")
    log.info("%d rows: %s; device %s", len(data.labels), ", ".join(f"{len(v)} {k}" for k, v in parts.items()), device)

    encoder = fit_encoder(config.schema, data, parts["train"])
    encoded = group.one_by_one(lambda: encode_parts(data, encoder, config, cuts, parts, cache))
    notes = [*data.notes, *export.flat_columns(encoder.layout, encoded["train"])]
    for note in notes:
        log.warning("warning: %s", note)
    leakage = None
    if group.first:
        leakage = look_for_leaks(data, cuts.parts(data.positions), config)  # with the negatives that are not trained on
        leakage.tell(strict=strict)
    by_time = data.times is not None and config.split.kind != "random"
    times = data.times[parts["train"]] if by_time and data.times is not None else None
    shares = unknown_shares(encoder.layout, encoded["train"], times, len(parts["valid"]) / len(parts["train"]))
    return Prepared(data, cuts, parts, catalog, encoder, encoded, notes, leakage, shares, by_time)
