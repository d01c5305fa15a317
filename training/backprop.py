"""Loss and gradients of a batch by hand: what autograd gives for `WideDeep.logits`, with no copy between the tables and
the layers. On the CPU, in float32, where `_rows.c` was compiled; everything else learns by autograd."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from training.batches import Batch
from training.layers import Layers
from training.model import EmbeddingTable, WideDeep
from training.places import Places, first_layer
from training.rows import Lookups, give, native

_PARTS = {"wide", "tables", "mlp", "calibration"}  # a model that has more of them is not all known here


class Backprop:
    """Learns from the batches of one model; `size` is the number of rows that a gradient is averaged over."""

    def __init__(self, model: WideDeep, size: int, like: Batch) -> None:
        self._model = model
        self._ids, self._bags = like.ids.size(1), len(like.bag_values)
        self._places = Places.of(model, like.numerics.size(1), self._ids, self._bags)
        self._layers = Layers(model.mlp, size)
        self._x = torch.empty(like.rows, self._places.width)

    @staticmethod
    def of(model: WideDeep, size: int, like: Batch) -> Backprop | None:
        """None where a batch like this one does not learn all that the model has."""
        known = type(model) is WideDeep and {name for name, _ in model.named_children()} == _PARTS
        plain = all(one.dtype == torch.float32 and one.device.type == "cpu" for one in model.parameters())
        if native is None or not known or not plain or not Layers.fit(model.mlp):
            return None
        if any(type(table) is not EmbeddingTable for table in model.tables):
            return None
        found = Backprop(model, size, like)
        return found if found._places.width == first_layer(model).in_features else None

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Tensor:
        """The sum of the rows' losses; adds their gradients, over `size`, to the parameters'."""
        crosses = []
        if self._model.wide.cross_starts:
            _, ids, values, offsets = batch.inputs
            crosses = [cross(ids, values, offsets) for cross in self._model.wide.crosses]
        ragged = [*zip(batch.bag_values, batch.bag_offsets, strict=True), *crosses]
        lookups = Lookups(batch.ids, ragged)
        x, logits = self._enter(batch, lookups), self._wide(batch, lookups, ragged)
        loss, grad = self._layers.learn(x, logits, batch.labels)
        self._give_numeric(batch, grad)
        self._give(batch, lookups, ragged, x, grad)
        return loss

    def _room(self, rows: int) -> Tensor:
        """Where a batch enters the first layer (B, ·), to be written over by the next."""
        if len(self._x) < rows:
            self._x = torch.empty(rows, self._places.width)
        return self._x[:rows]

    def _enter(self, batch: Batch, lookups: Lookups) -> Tensor:
        """What enters the first layer (B, ·)."""
        x = self._room(batch.rows)
        for first, last, at in self._places.numerics:
            x[:, at : at + last - first] = batch.numerics[:, first:last]
        for one in self._places.tables:
            weight = one.table.weight
            for side in (one.left, one.right):
                if side:
                    lookups.gather(weight, side, x[:, side[0].at :])
            for place in one.bags:
                values, offsets = (
                    batch.bag_values[place.column - self._ids],
                    batch.bag_offsets[place.column - self._ids],
                )
                x[:, place.at : place.at + weight.size(1)] = F.embedding_bag(
                    values.long() + place.start, weight, offsets, mode="mean", include_last_offset=True
                )
        return x

    def _wide(self, batch: Batch, lookups: Lookups, ragged: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Wide logits (B,), without the bias."""
        wide = self._model.wide
        logits = batch.numerics.index_select(1, wide.numeric_columns) @ wide.numeric_weight.squeeze(1)
        lookups.weigh(wide.weight, self._places.wide_ids, logits)
        for place in self._places.wide_bags:
            values, offsets = ragged[place.column - self._ids]
            logits += wide.weigh(values.long() + place.start, offsets).squeeze(1)
        return logits

    def _give_numeric(self, batch: Batch, grad: Tensor) -> None:
        wide = self._model.wide
        if wide.numeric_weight.numel():
            found = (batch.numerics.index_select(1, wide.numeric_columns).t() @ grad)[:, None]
            before = wide.numeric_weight.grad
            wide.numeric_weight.grad = found if before is None else before + found

    def _give(
        self, batch: Batch, lookups: Lookups, ragged: list[tuple[Tensor, Tensor]], x: Tensor, grad: Tensor
    ) -> None:
        """The tables' gradients, from those of the first layer's input and of the logits."""
        for one in self._places.tables:
            weight = one.table.weight
            give(weight, *lookups.sums([*one.left, *one.right, *one.bags], x, weight.size(1), mean=True))
        wide, ids, bags = self._model.wide, self._places.wide_ids, self._places.wide_bags
        if ids or bags:
            give(wide.weight, *lookups.sums([*ids, *bags], grad[:, None], 1, mean=False))
