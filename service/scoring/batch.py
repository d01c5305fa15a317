"""Encoded requests, ready to be scored together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from service.scoring.candidates import Items
from service.scoring.encoded import Encoded, Floats, Ints, add_counts


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of all requests in row form, and the users (one row each) and candidates of all rankings, in order.

    `sizes` are the rows of each request and `ranks` says which are rankings. The counts are of values that the requests
    sent, by feature.
    """

    sizes: list[int]
    ranks: list[bool]
    whole: Encoded | None = None
    users: Encoded | None = None
    items: Items | None = None
    unknown: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)

    @property
    def index(self) -> Ints:
        """The user of each candidate."""
        sizes = [size for size, ranked in zip(self.sizes, self.ranks, strict=True) if ranked]
        return np.repeat(np.arange(len(sizes)), sizes)

    def rows(self) -> Encoded:
        """Every request as whole rows, those in row form first."""
        parts = [] if self.whole is None else [self.whole]
        if self.users is not None and self.items is not None:
            parts.append(Encoded.beside(self.users.take(self.index), self.items.encoded()))
        return Encoded.concat(parts)

    def split(self, whole: Floats | None, ranked: Floats | None) -> list[Floats]:
        """The scores of each request, from those of the rows and of the candidates."""
        scores: list[Floats] = []
        ends = {False: 0, True: 0}
        for size, ranks in zip(self.sizes, self.ranks, strict=True):
            source, start = ranked if ranks else whole, ends[ranks]
            assert source is not None  # there are scores of what there is
            scores.append(source[start : start + size])
            ends[ranks] = start + size
        return scores

    def strangers(self) -> list[int | None]:
        """How many candidates of each request the catalog lacks; None in row form."""
        if self.items is None or not self.items.strangers.size:
            return [0 if ranks else None for ranks in self.ranks]
        ends = np.cumsum([size if ranks else 0 for size, ranks in zip(self.sizes, self.ranks, strict=True)])
        before = np.searchsorted(self.items.strangers, ends)
        counts = np.diff(before, prepend=0).tolist()
        return [count if ranks else None for count, ranks in zip(counts, self.ranks, strict=True)]

    @staticmethod
    def concat(parts: Sequence[Batch]) -> Batch:
        """Batches of one catalog as one, in order."""
        if len(parts) == 1:
            return parts[0]
        whole = [part.whole for part in parts if part.whole is not None]
        users = [part.users for part in parts if part.users is not None]
        items = [part.items for part in parts if part.items is not None]
        return Batch(
            [size for part in parts for size in part.sizes],
            [ranks for part in parts for ranks in part.ranks],
            Encoded.concat(whole) if whole else None,
            Encoded.concat(users) if users else None,
            Items.concat(items) if items else None,
            add_counts(part.unknown for part in parts),
            add_counts(part.missing for part in parts),
        )
