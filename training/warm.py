"""Warm start: a new model begins where an earlier version ended, as the paper retrains (Cheng et al. 2016, 4.2).

Columns are matched by name and their ids by what they stand for; an id that the version lacks begins as its unknown id
did, which was trained to say what new values are like. Layers are taken over where their inputs are the same columns.
Wide numerics and crosses are taken over where nothing about them changed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from service.scoring.artifact import open_artifact
from service.scoring.categorical import CategoricalField, MultiField
from service.scoring.encoded import Ints
from service.scoring.features import FeatureEncoder
from service.scoring.fields import Field
from service.scoring.files import MODULE, ArtifactError
from service.scoring.layout import FIRST_VALUE, MISSING, UNKNOWN, IdColumn, Layout
from service.scoring.torchscript import read_module
from training.model import WideDeep, starts_of

log = logging.getLogger("training")
Weights: TypeAlias = Mapping[str, Tensor]


@torch.no_grad()
def warm_start(model: WideDeep, encoder: FeatureEncoder, version: Path) -> None:
    """Give `model` (on the CPU, fresh) what the version in the folder `version` has learned; raises ArtifactError."""
    try:
        old = open_artifact(version).encoder
        module = read_module(version / MODULE, "cpu")
    except ArtifactError as error:
        raise ArtifactError(f"[train] warm_start = '{version}': {error}") from None
    weights = {name.removeprefix("model."): value for name, value in module.named_parameters()}
    rows = _row_maps(encoder, old)
    taken = _tables(model, encoder.layout, old.layout, weights, rows) + _wide(
        model, encoder.layout, old.layout, weights, rows
    )
    same = _inputs(encoder.layout) == _inputs(old.layout) and _layers(model, weights)
    log.info("warm start from %s: %d columns, %s layers", version.name, taken, "its" if same else "fresh")


def _row_maps(encoder: FeatureEncoder, old: FeatureEncoder) -> dict[str, Ints]:
    """For each id column of both, by name: the old row of each new id."""
    fields = {one.feature.name: one for one in old.fields}
    before = {column.name: column for column in (*old.layout.ids, *old.layout.bags)}
    maps = {}
    for one in encoder.fields:
        known = fields.get(one.feature.name)
        for column in one.id_columns():
            if known is not None and column.name in before:
                rows = _ids(one, known, column)
                if rows is not None:
                    rows[MISSING] = MISSING if before[column.name].missing_trained else UNKNOWN
                    maps[column.name] = rows
    return maps


def _ids(new: Field, old: Field, column: IdColumn) -> Ints | None:
    if isinstance(new, CategoricalField | MultiField) and isinstance(old, CategoricalField | MultiField):
        if not new.vocabulary.buckets and not old.vocabulary.buckets:
            return np.concatenate([np.arange(FIRST_VALUE), old.vocabulary.ids_of(new.vocabulary.texts)])
        same = new.vocabulary.buckets == old.vocabulary.buckets
    else:
        same = (new.feature.kind, new.feature.bins, new.feature.tz) == (
            old.feature.kind,
            old.feature.bins,
            old.feature.tz,
        )
    return np.arange(column.size) if same else None


def _tables(model: WideDeep, new: Layout, old: Layout, weights: Weights, rows: dict[str, Ints]) -> int:
    dims, old_dims = _dims(new), _dims(old)
    taken = 0
    for n, dim in enumerate(dims):
        table = model.tables[n].weight
        assert isinstance(table, Tensor)  # an embedding table's
        if dim in old_dims:
            source = weights[f"tables.{old_dims.index(dim)}.weight"]
            taken += _copy(table, source, _starts(new, dim), _starts(old, dim), rows)
    return taken


def _wide(model: WideDeep, new: Layout, old: Layout, weights: Weights, rows: dict[str, Ints]) -> int:
    source = weights["wide.weight"]
    taken = _copy(model.wide.weight, source, _starts(new), _starts(old), rows)
    numerics, known = ([c.name for c in layout.numerics if c.wide] for layout in (new, old))
    if numerics == known:
        model.wide.numeric_weight.copy_(weights["wide.numeric_weight"])
    before = dict(zip((cross.name for cross in old.crosses), _cross_starts(old), strict=True))
    crosses = {cross.name: cross for cross in old.crosses}
    for cross, start in zip(new.crosses, _cross_starts(new), strict=True):
        known_cross = crosses.get(cross.name)
        members = [(new.bags if bag else new.ids)[n].name for bag, n in cross.members]
        unmoved = all(name in rows and _is_identity(rows[name]) for name in members)
        if known_cross and unmoved and (known_cross.sizes, known_cross.buckets) == (cross.sizes, cross.buckets):
            at = before[cross.name]
            model.wide.weight[start : start + cross.buckets] = source[at : at + cross.buckets]
    return taken


def _is_identity(rows: Ints) -> bool:
    return bool((rows[FIRST_VALUE:] == np.arange(FIRST_VALUE, len(rows))).all())


def _layers(model: WideDeep, weights: Weights) -> bool:
    """Take the layers over; False, and nothing changed, where their shapes differ or a norm stands between them."""
    state = dict(model.mlp.named_parameters())
    old = {name.removeprefix("mlp."): value for name, value in weights.items() if name.startswith("mlp.")}
    if {name: value.shape for name, value in state.items()} != {name: value.shape for name, value in old.items()}:
        return False
    for name, value in state.items():
        value.copy_(old[name])
    head = model.mlp[-1]
    assert isinstance(head, nn.Linear)  # the MLP ends in it
    head.bias.sub_(model.correction)  # the version's logits are those of the whole data
    return True


def _copy(new: Tensor, old: Tensor, starts: dict[str, int], before: dict[str, int], rows: dict[str, Ints]) -> int:
    shared = [name for name in starts if name in before and name in rows]
    for name in shared:
        chosen = torch.from_numpy(rows[name]) + before[name]
        new[starts[name] : starts[name] + len(chosen)] = old.index_select(0, chosen)
    return len(shared)


def _inputs(layout: Layout) -> list[tuple[str, int]]:
    """What enters the first layer, in its order."""
    numerics = [(column.name, 1) for column in layout.numerics]
    return [*numerics, *((column.name, column.dim) for column in (*layout.ids, *layout.bags))]


def _dims(layout: Layout) -> list[int]:
    return sorted({column.dim for column in (*layout.ids, *layout.bags)})


def _starts(layout: Layout, dim: int | None = None) -> dict[str, int]:
    """First row of each column in the table of width `dim`, or in the wide one."""
    ids, bags = ([c for c in part if (c.wide if dim is None else c.dim == dim)] for part in (layout.ids, layout.bags))
    id_starts, bag_starts, _ = starts_of(ids, bags)
    return dict(zip((c.name for c in (*ids, *bags)), (*id_starts, *bag_starts), strict=True))


def _cross_starts(layout: Layout) -> list[int]:
    _, _, start = starts_of([c for c in layout.ids if c.wide], [c for c in layout.bags if c.wide])
    starts = []
    for cross in layout.crosses:
        starts.append(start)
        start += cross.buckets
    return starts
