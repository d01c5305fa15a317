"""Training rows as tensors on the device: a buffer is one gather, a batch is a slice, and no row is ever collated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from service.scoring.encoded import Encoded
from service.scoring.layout import UNKNOWN


@dataclass(frozen=True, slots=True)
class Batch:
    """B rows: what the module's forward takes, and the labels (B,).

    Ids may be int32, as the cache holds them: half of the memory to shuffle. `inputs` are int64, as the module wants.
    """

    numerics: Tensor
    ids: Tensor
    bag_values: list[Tensor]
    bag_offsets: list[Tensor]
    labels: Tensor

    @classmethod
    def of(cls, encoded: Encoded, labels: npt.NDArray[np.float32], device: str) -> Batch:
        put = [_on(device, array) for array in (encoded.numerics, encoded.ids, labels)]
        values = [_on(device, bag.values) for bag in encoded.bags]
        offsets = [_on(device, bag.offsets) for bag in encoded.bags]
        return cls(put[0], put[1], values, offsets, put[2])

    @staticmethod
    def cat(parts: Sequence[Batch]) -> Batch:
        """The rows of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        return Batch(
            torch.cat([part.numerics for part in parts]),
            torch.cat([part.ids for part in parts]),
            [torch.cat(values) for values in zip(*(part.bag_values for part in parts), strict=True)],
            [_joined(offsets) for offsets in zip(*(part.bag_offsets for part in parts), strict=True)],
            torch.cat([part.labels for part in parts]),
        )

    @property
    def rows(self) -> int:
        return self.labels.size(0)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.numerics, self.ids, self.labels, *self.bag_values, *self.bag_offsets

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    def read(self, start: int, end: int) -> Batch:
        """Rows start .. end - 1, views of these; see shuffle.Rows."""
        if (start, end) == (0, self.rows):
            return self
        ends = [(int(offsets[start]), int(offsets[end])) for offsets in self.bag_offsets]
        return Batch(
            self.numerics[start:end],
            self.ids[start:end],
            [values[a:b] for values, (a, b) in zip(self.bag_values, ends, strict=True)],
            [offsets[start : end + 1] - a for offsets, (a, _) in zip(self.bag_offsets, ends, strict=True)],
            self.labels[start:end],
        )

    @property
    def inputs(self) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
        return self.numerics, self.ids.long(), [values.long() for values in self.bag_values], self.bag_offsets

    def take(self, index: Tensor) -> Batch:
        """The rows of `index` in that order."""
        ragged = [_take_ragged(v, o, index) for v, o in zip(self.bag_values, self.bag_offsets, strict=True)]
        return Batch(
            self.numerics.index_select(0, index),
            self.ids.index_select(0, index),
            [values for values, _ in ragged],
            [offsets for _, offsets in ragged],
            self.labels.index_select(0, index),
        )

    def slices(self, size: int, first: int = 0) -> Iterator[Batch]:
        """Batches of `size` rows, the last one of what is left; those before number `first` are left out."""
        ends = [
            offsets[torch.arange(0, self.rows + size, size).clamp_(max=self.rows)].tolist()
            for offsets in self.bag_offsets
        ]
        for n, start in enumerate(range(0, self.rows, size)):
            if n < first:
                continue
            rows = slice(start, start + size)
            yield Batch(
                self.numerics[rows],
                self.ids[rows],
                [values[end[n] : end[n + 1]] for values, end in zip(self.bag_values, ends, strict=True)],
                [o[start : start + size + 1] - end[n] for o, end in zip(self.bag_offsets, ends, strict=True)],
                self.labels[rows],
            )

    def with_unknown(self, id_shares: list[float], bag_shares: list[float], generator: torch.Generator) -> Batch:
        """A copy in which a share of each column's rows has the unknown id; of a bag, one value drawn at random."""
        ids = self.ids.clone()
        for column, share in enumerate(id_shares):
            ids[self._some_rows(share, generator), column] = UNKNOWN
        values = []
        for bag, offsets, share in zip(self.bag_values, self.bag_offsets, bag_shares, strict=True):
            rows = self._some_rows(share, generator)
            # A bag that holds the unknown id already (first, as it is sorted) stays: its values must be distinct.
            rows = rows[bag[offsets[rows]] != UNKNOWN]
            lengths = offsets[rows + 1] - offsets[rows]
            drawn = torch.rand(len(rows), generator=generator).to(bag.device)
            values.append(bag.index_fill(0, offsets[rows] + (drawn * lengths).long(), UNKNOWN))
        return Batch(self.numerics, ids, values, self.bag_offsets, self.labels)

    def _some_rows(self, share: float, generator: torch.Generator) -> Tensor:
        """At least one row where the share is not 0, so that the unknown id is trained in a small table too."""
        if not share:
            return torch.zeros(0, dtype=torch.int64, device=self.ids.device)
        count = min(self.rows, max(1, round(share * self.rows)))
        return torch.randperm(self.rows, generator=generator)[:count].to(self.ids.device)


def _on(device: str, array: npt.NDArray[np.generic]) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    # From pinned memory a copy runs at the bus's full speed, and on its stream, beside the computing.
    return tensor.pin_memory().to(device, non_blocking=True) if device.startswith("cuda") else tensor


def _joined(offsets: Sequence[Tensor]) -> Tensor:
    ends = torch.cat([part[-1:] for part in offsets]).cumsum(0)
    shifted = [part[1:] + end - part[-1] for part, end in zip(offsets, ends, strict=True)]
    return torch.cat([offsets[0][:1], *shifted])


def _take_ragged(values: Tensor, offsets: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    starts = offsets[index]
    lengths = offsets[index + 1] - starts
    taken = torch.cat([torch.zeros_like(offsets[:1]), lengths.cumsum(0)])
    place = torch.arange(int(taken[-1]), device=values.device) + (starts - taken[:-1]).repeat_interleave(lengths)
    return values[place], taken
