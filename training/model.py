"""Wide & Deep (Cheng et al. 2016, arXiv:1606.07792): two logits of one row, added, one logistic loss.

Shape letters: B rows, N numerics, C single-valued id columns, M bags, D an embedding's width, H a layer's width.
Every class here is written for `torch.jit.script`: ids come local to their column, and what turns them into rows of
a table (offsets, crosses) is int64 arithmetic inside the module, so that training and serving cannot differ.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from service.scoring.layout import IdColumn, Layout
from training.crosses import CrossIds

EMBEDDING_STD = 0.01  # small, so that an id seen once or twice says next to nothing


class EmbeddingTable(nn.Module):
    """The vectors of all id columns and bags of one width, in one table; a bag is the mean of its values' vectors.

    The mean and not the sum: a film of five genres would otherwise enter the first layer five times as loud.
    """

    columns: Tensor
    starts: Tensor
    bags: list[int]
    bag_starts: list[int]

    def __init__(self, layout: Layout, dim: int) -> None:
        super().__init__()
        ids = [n for n, column in enumerate(layout.ids) if column.dim == dim]
        self.bags = [n for n, column in enumerate(layout.bags) if column.dim == dim]
        id_starts, self.bag_starts, rows = starts_of([layout.ids[n] for n in ids], [layout.bags[n] for n in self.bags])
        self.width = dim * (len(ids) + len(self.bags))
        self.left_width = dim * sum(layout.ids[n].side != "item" for n in ids)
        self.left_bags = sum(layout.bags[n].side != "item" for n in self.bags)
        self.register_buffer("columns", torch.tensor(ids, dtype=torch.int64))
        self.register_buffer("starts", torch.tensor(id_starts, dtype=torch.int64))
        self.weight = nn.Parameter(torch.empty(rows, dim).normal_(std=EMBEDDING_STD))

    def forward(self, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Vectors (B, ·) of user and context columns, and of item columns."""
        flat = F.embedding(ids.index_select(1, self.columns) + self.starts, self.weight, sparse=True).flatten(1)
        left, right = [flat[:, : self.left_width]], [flat[:, self.left_width :]]
        for n, bag in enumerate(self.bags):
            vectors = F.embedding_bag(
                bag_values[bag] + self.bag_starts[n],
                self.weight,
                bag_offsets[bag],
                mode="mean",
                sparse=True,
                include_last_offset=True,
            )
            if n < self.left_bags:
                left.append(vectors)
            else:
                right.append(vectors)
        return torch.cat(left, 1), torch.cat(right, 1)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that lets a batch of one row pass with the running statistics, having none of its own."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.size(0) > 1:
            return F.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, True, self.momentum or 0.1, self.eps
            )
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)


class Wide(nn.Module):
    """Linear in the wide columns and the crosses; a bag counts each of its values in full, as in the paper."""

    columns: Tensor
    starts: Tensor
    numeric_columns: Tensor
    bags: list[int]
    bag_starts: list[int]
    cross_starts: list[int]

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        ids = [n for n, column in enumerate(layout.ids) if column.wide]
        numerics = [n for n, column in enumerate(layout.numerics) if column.wide]
        self.bags = [n for n, column in enumerate(layout.bags) if column.wide]
        id_starts, self.bag_starts, rows = starts_of([layout.ids[n] for n in ids], [layout.bags[n] for n in self.bags])
        self.cross_starts = []
        for cross in layout.crosses:
            self.cross_starts.append(rows)
            rows += cross.buckets
        self.crosses = nn.ModuleList(CrossIds(cross.members, cross.sizes, cross.buckets) for cross in layout.crosses)
        self.register_buffer("columns", torch.tensor(ids, dtype=torch.int64))
        self.register_buffer("starts", torch.tensor(id_starts, dtype=torch.int64))
        self.register_buffer("numeric_columns", torch.tensor(numerics, dtype=torch.int64))
        self.weight = nn.Parameter(torch.zeros(rows, 1))
        self.numeric_weight = nn.Parameter(torch.zeros(len(numerics), 1))

    def forward(self, numerics: Tensor, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> Tensor:
        """Wide logits (B, 1), without the bias."""
        logits = numerics.index_select(1, self.numeric_columns) @ self.numeric_weight
        logits = logits + F.embedding(ids.index_select(1, self.columns) + self.starts, self.weight, sparse=True).sum(1)
        for n, bag in enumerate(self.bags):
            logits = logits + self.weigh(bag_values[bag] + self.bag_starts[n], bag_offsets[bag])
        for n, cross in enumerate(self.crosses):
            values, offsets = cross(ids, bag_values, bag_offsets)
            logits = logits + self.weigh(values + self.cross_starts[n], offsets)
        return logits

    def terms(self, numerics: Tensor, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> list[Tensor]:
        """The same sum in its parts: (B, wide numerics), (B, wide id columns), then (B, 1) for each bag and cross."""
        parts = [numerics.index_select(1, self.numeric_columns) * self.numeric_weight.squeeze(1)]
        parts.append(F.embedding(ids.index_select(1, self.columns) + self.starts, self.weight).squeeze(2))
        for n, bag in enumerate(self.bags):
            parts.append(self.weigh(bag_values[bag] + self.bag_starts[n], bag_offsets[bag]))
        for n, cross in enumerate(self.crosses):
            values, offsets = cross(ids, bag_values, bag_offsets)
            parts.append(self.weigh(values + self.cross_starts[n], offsets))
        return parts

    def weigh(self, rows: Tensor, offsets: Tensor) -> Tensor:
        """Sums (B, 1) of the weights of ragged rows of the table."""
        return F.embedding_bag(rows, self.weight, offsets, mode="sum", sparse=True, include_last_offset=True)


class WideDeep(nn.Module):
    """The whole model; `forward` gives probabilities (B,), `logits` what the loss wants.

    `correction` is added to the logits for a probability: ln w where a share w of the negatives was trained on, which
    is p / (p + (1 - p) / w) of the probability without it (He et al. 2014, section 6.3).
    """

    correction: float

    def __init__(self, layout: Layout, hidden: Sequence[int], dropout: float, norm: str = "none") -> None:
        super().__init__()
        self.correction = 0.0
        self.wide = Wide(layout)
        dims = sorted({column.dim for column in (*layout.ids, *layout.bags)})
        tables = [EmbeddingTable(layout, dim) for dim in dims]
        self.tables = nn.ModuleList(tables)
        self.left_numerics = sum(column.side != "item" for column in layout.numerics)
        layers: list[nn.Module] = []
        width = len(layout.numerics) + sum(table.width for table in tables)
        for out in hidden:
            norms = [BatchNorm(out)] if norm == "batch" else []
            layers += [nn.Linear(width, out), *norms, nn.ReLU(), nn.Dropout(dropout)]
            width = out
        self.mlp = nn.Sequential(*layers, nn.Linear(width, 1))
        self.calibration: nn.Module = nn.Identity()  # of the corrected logit, fitted after training: calibration.py

    def forward(self, numerics: Tensor, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> Tensor:
        """Probabilities (B,). numerics (B, N) float32; ids (B, C), bag values (nnz,) and offsets (B + 1,) int64."""
        return torch.sigmoid(self.calibration(self.logits(numerics, ids, bag_values, bag_offsets) + self.correction))

    def logits(self, numerics: Tensor, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> Tensor:
        """Log-odds (B,): wide + deep, before any correction."""
        deep = self.deep(numerics, ids, bag_values, bag_offsets)
        wide: Tensor = self.wide(numerics, ids, bag_values, bag_offsets)
        return (wide + deep).squeeze(1)

    def deep(self, numerics: Tensor, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> Tensor:
        """Deep logits (B, 1), the bias in them."""
        # User and context columns come first, item columns last: W·[u;i] can then be split into Wu·u + Wi·i.
        left, right = [numerics[:, : self.left_numerics]], [numerics[:, self.left_numerics :]]
        for table in self.tables:
            user, item = table(ids, bag_values, bag_offsets)
            left.append(user)
            right.append(item)
        deep: Tensor = self.mlp(torch.cat(left + right, 1))
        return deep

    def start_at(self, rate: float) -> None:
        """Set the bias to the log-odds of the base rate, so that the first steps are not spent on finding it."""
        head = self.mlp[-1]
        assert isinstance(head, nn.Linear)
        nn.init.constant_(head.bias, torch.logit(torch.tensor(rate, dtype=torch.float64)).item())


def starts_of(ids: list[IdColumn], bags: list[IdColumn]) -> tuple[list[int], list[int], int]:
    """First row of each id column and of each bag in a table that holds them all, and its number of rows."""
    starts = [0]
    for column in (*ids, *bags):
        starts.append(starts[-1] + column.size)
    return starts[: len(ids)], starts[len(ids) : -1], starts[-1]
