"""Memory that runs out in training, said with what takes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from service.scoring.layout import Layout
from training.config import TrainConfig
from training.errors import FitError
from training.model import WideDeep

_WORDS = ("allocate memory", "out of memory", "Storage size calculation overflowed")  # torch's RuntimeErrors


def of_memory(error: Exception) -> bool:
    """Whether memory ran out, the machine's or a GPU's."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in _WORDS)


@contextmanager
def told_of_memory(model: WideDeep, layout: Layout, train: TrainConfig, device: str) -> Iterator[None]:
    """Turn memory that runs out inside into a FitError that names the largest table and the batch."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not of_memory(error):
            raise
        raise FitError(
            f"not enough memory on {device} for training: batch_size {train.batch_size}, {largest_table(layout)}, "
            f"{sum(one.numel() for one in model.parameters())} parameters in all; "
            "a smaller batch_size, more [train] accumulate, a smaller dim, hidden or buckets, or a min_count take less"
        ) from None


def largest_table(layout: Layout) -> str:
    """The column whose embeddings are the most."""
    columns = [*layout.ids, *layout.bags]
    if not columns:
        return "no table"
    most = max(columns, key=lambda column: column.size * column.dim)
    return f"the largest table is '{most.name}' ({most.size} ids of dim {most.dim})"
