"""One side's share of rows: what an engine makes once of a user or an item and joins with many of the other side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Half:
    """One side's share of K rows: first layer (K, H), wide sum (K, 1), ragged cross parts of X crosses."""

    first: torch.Tensor
    wide: torch.Tensor
    values: list[torch.Tensor]
    offsets: list[torch.Tensor]

    @property
    def rows(self) -> int:
        return self.first.size(0)

    @property
    def bytes(self) -> int:
        return sum(one.numel() * one.element_size() for one in (self.first, self.wide, *self.values, *self.offsets))

    @property
    def bytes_per_row(self) -> float:
        """Memory that a row takes: 4 · (H + 1), and for every cross of both sides 8, and 8 for each of its values."""
        return self.bytes / max(1, self.rows)

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        return self.first, self.wide, self.values, self.offsets

    def take(self, rows: torch.Tensor) -> Half:
        """The chosen rows in the given order."""
        ragged = [take_ragged(v, o, rows) for v, o in zip(self.values, self.offsets, strict=True)]
        first, wide = self.first.index_select(0, rows), self.wide.index_select(0, rows)
        return Half(first, wide, [values for values, _ in ragged], [offsets for _, offsets in ragged])

    @staticmethod
    def concat(parts: Sequence[Half]) -> Half:
        if len(parts) == 1:
            return parts[0]
        crosses = range(len(parts[0].values))
        return Half(
            torch.cat([part.first for part in parts]),
            torch.cat([part.wide for part in parts]),
            [torch.cat([part.values[n] for part in parts]) for n in crosses],
            [concat_offsets([part.offsets[n] for part in parts]) for n in crosses],
        )


def take_ragged(values: torch.Tensor, offsets: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The ragged rows of `rows`, in that order."""
    starts = offsets.index_select(0, rows)
    lengths = offsets.index_select(0, rows + 1) - starts
    taken = torch.cat([torch.zeros_like(offsets[:1]), lengths.cumsum(0)])
    place = torch.arange(int(taken[-1]), device=values.device) + (starts - taken[:-1]).repeat_interleave(lengths)
    return values.index_select(0, place), taken


def concat_offsets(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The offsets of ragged tensors laid end to end."""
    shifted, end = [parts[0]], parts[0][-1]
    for part in parts[1:]:
        shifted.append(part[1:] + end)
        end = shifted[-1][-1]
    return torch.cat(shifted)
