"""Cross-products of id columns inside the module: which rows of the wide table a row's crosses touch."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class CrossIds(nn.Module):
    """Ids of one cross, ragged: every combination of the members' values in a row.

    A combination is one number in mixed radix (the members' sizes). Where all of them fit into the table that number
    is the id, and two combinations never meet; else it goes through a bijective 64-bit mix before the modulo, so that
    what collides is chance and not a pattern of the ids. Numbers beyond 64 bits wrap.
    """

    is_bag: list[bool]
    index: list[int]
    sizes: list[int]

    def __init__(self, members: Sequence[tuple[bool, int]], sizes: Sequence[int], buckets: int) -> None:
        super().__init__()
        self.is_bag = [is_bag for is_bag, _ in members]
        self.index = [index for _, index in members]
        self.sizes = list(sizes)
        self.buckets = buckets
        self.exact = math.prod(sizes) <= buckets

    def forward(self, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Values (nnz,) in 0 .. buckets-1 and offsets (B + 1,)."""
        values = torch.zeros(ids.size(0), dtype=torch.int64, device=ids.device)
        offsets = torch.arange(ids.size(0) + 1, device=ids.device)
        for n, is_bag in enumerate(self.is_bag):
            if is_bag:
                values, offsets = outer(
                    values * self.sizes[n], offsets, bag_values[self.index[n]], bag_offsets[self.index[n]]
                )
            else:
                column = ids[:, self.index[n]]
                values = values * self.sizes[n] + column.repeat_interleave(offsets.diff())
        if not self.exact:
            values = torch.remainder(mix64(values), self.buckets)
        return values, offsets


def outer(a: Tensor, a_offsets: Tensor, b: Tensor, b_offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Row by row, a + b for every pair: ragged (B rows) × ragged (B rows) → ragged, a's order outside, b's inside."""
    b_lengths = b_offsets.diff()
    lengths = a_offsets.diff() * b_lengths
    offsets = torch.cat([torch.zeros_like(a_offsets[:1]), lengths.cumsum(0)])
    row = torch.arange(lengths.size(0), device=a.device).repeat_interleave(lengths)
    place = torch.arange(row.size(0), device=a.device) - offsets[row]
    wide = b_lengths[row]
    left = a_offsets[row] + torch.div(place, wide, rounding_mode="floor")
    return a[left] + b[b_offsets[row] + torch.remainder(place, wide)], offsets


def mix64(x: Tensor) -> Tensor:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014) in wrapping int64; a bijection."""
    x = x ^ ((x >> 30) & 0x3FFFFFFFF)  # the mask makes the arithmetic shift a logical one
    x = x * -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9
    x = x ^ ((x >> 27) & 0x1FFFFFFFFF)
    x = x * -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB
    return x ^ ((x >> 31) & 0x1FFFFFFFF)
