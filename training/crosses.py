"""Cross-products of id columns inside the module: which rows of the wide table a row's crosses touch."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

MASK64 = (1 << 64) - 1


def strides(sizes: Sequence[int]) -> list[int]:
    """What each member's id is multiplied by, so that the sum over the members is the combination's number.

    Mixed radix where the product of the sizes fits into 63 bits: no two combinations share a number. Beyond that odd
    64-bit constants, whose wrapping sums meet by chance alone. A sum either way: the part of one side of the model
    can be made before the other side is known.
    """
    if math.prod(sizes) < 1 << 63:
        return [math.prod(sizes[n + 1 :]) for n in range(len(sizes))]
    return [_signed(_mix((n + 1) * 0x9E3779B97F4A7C15) | 1) for n in range(len(sizes))]


class CrossPart(nn.Module):
    """Numbers of a cross, ragged: for every combination of members `(is_bag, index, stride)` the sum of their shares.

    With some of a cross's members alone it is their part of the number.
    """

    is_bag: list[bool]
    index: list[int]
    strides: list[int]

    def __init__(self, members: Sequence[tuple[bool, int, int]]) -> None:
        super().__init__()
        self.is_bag = [is_bag for is_bag, _, _ in members]
        self.index = [index for _, index, _ in members]
        self.strides = [stride for _, _, stride in members]

    def forward(self, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Numbers (nnz,) and offsets (B + 1,)."""
        values, offsets = self.member(0, ids, bag_values, bag_offsets)
        for n in range(1, len(self.is_bag)):
            if self.is_bag[n]:
                bag = bag_values[self.index[n]] * self.strides[n]
                values, offsets = outer(values, offsets, bag, bag_offsets[self.index[n]])
            else:
                column = ids[:, self.index[n]] * self.strides[n]
                values = values + column.repeat_interleave(offsets.diff())
        return values, offsets

    def member(self, n: int, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The shares of one member alone, ragged."""
        if self.is_bag[n]:
            return bag_values[self.index[n]] * self.strides[n], bag_offsets[self.index[n]]
        return ids[:, self.index[n]] * self.strides[n], torch.arange(ids.size(0) + 1, device=ids.device)


class CrossIds(nn.Module):
    """Ids of one cross, ragged: every combination of the members' values in a row.

    Where all combinations fit into the table a combination's number is its id, and two never meet; else it goes
    through a bijective 64-bit mix before the modulo, so that what collides is chance and not a pattern of the ids.
    """

    strides: list[int]

    def __init__(self, members: Sequence[tuple[bool, int]], sizes: Sequence[int], buckets: int) -> None:
        super().__init__()
        self.strides = strides(sizes)
        self.numbers = CrossPart([(*member, stride) for member, stride in zip(members, self.strides, strict=True)])
        self.buckets = buckets
        self.exact = math.prod(sizes) <= buckets

    def forward(self, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Values (nnz,) in 0 .. buckets-1 and offsets (B + 1,)."""
        numbers, offsets = self.numbers(ids, bag_values, bag_offsets)
        return table_rows(numbers, self.buckets, self.exact), offsets


def table_rows(numbers: Tensor, buckets: int, exact: bool) -> Tensor:
    """The table's rows of combinations' numbers, see CrossIds."""
    return numbers if exact else torch.remainder(mix64(numbers), buckets)


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


def _mix(x: int) -> int:
    x &= MASK64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK64
    return x ^ x >> 31


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x
