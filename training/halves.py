"""The exported module: `forward` row by row, and the same scores with the user's half and the items' half made apart.

    user(rows of user and context columns)  ─▶ half ─┐
                                                     ├─▶ rank(pairs) ─▶ probabilities, equal to `forward`
    items(rows of item columns)             ─▶ half ─┘

An algebraic identity, decided at export; the training model is not bent for it. The first layer is linear in its
input, W·[u; i] = Wu·u + Wi·i. The wide sum splits into what is the user's, the item's and the pair's. The number of a
combination in a cross is a sum over its members (`training.crosses`): each side's part is made alone, and added pair
by pair.

Shape letters: U users, K items, P pairs, H the first layer's width, X crosses of both sides. A half is
(first (·, H), wide (·, 1), values and offsets of X ragged tensors of cross parts).
"""

import torch
from torch import Tensor, nn

from service.scoring.layout import Layout
from training.fold import folded
from training.model import WideDeep
from training.sides import Half, PairCross, Side, one_sided

exported = torch.jit.export  # scripted though `forward` does not call it


class HalvedWideDeep(nn.Module):
    """A trained model with `user`, `items`, `rank` and `explain` beside `forward`; shares the model's parameters."""

    def __init__(self, model: WideDeep, layout: Layout) -> None:
        super().__init__()
        model = folded(model)
        self.model = model
        self.left = Side(model, layout, items=False)
        self.right = Side(model, layout, items=True)
        both = [n for n, cross in enumerate(layout.crosses) if not one_sided(cross, layout)]
        self.pairs = nn.ModuleList(PairCross(model.wide, n) for n in both)
        self.rest = nn.Sequential(*(_serving(layer) for layer in list(model.mlp)[1:]))

    def forward(self, numerics: Tensor, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> Tensor:
        """Probabilities (B,) of whole rows."""
        probabilities: Tensor = self.model(numerics, ids, bag_values, bag_offsets)
        return probabilities

    @exported
    def user(self, numerics: Tensor, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> Half:
        """Halves of U rows of user and context columns; the first layer's bias is in them."""
        half: Half = self.left(numerics, ids, bag_values, bag_offsets)
        return half

    @exported
    def items(self, numerics: Tensor, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]) -> Half:
        """Halves of K rows of item columns."""
        half: Half = self.right(numerics, ids, bag_values, bag_offsets)
        return half

    @exported
    def rank(self, user: Half, items: Half, rows: Tensor, users: Tensor) -> Tensor:
        """Probabilities (P,) of pairs: pair p is of items' row `rows[p]` and of user row `users[p]`."""
        # In place wherever the tensor is this call's own: at a hundred pairs every allocation shows.
        first, logits = items[0].index_select(0, rows), items[1].index_select(0, rows)
        if user[0].size(0) == 1:
            first, logits = first.add_(user[0]), logits.add_(user[1])
        else:
            first.add_(user[0].index_select(0, users))
            logits.add_(user[1].index_select(0, users))
        logits.add_(self.rest(first))
        for n, pair in enumerate(self.pairs):
            logits.add_(pair(user[2][n], user[3][n], items[2][n], items[3][n], users, rows))
        return torch.sigmoid(self.model.calibration(logits)).squeeze(1)

    @exported
    def explain(
        self, numerics: Tensor, ids: Tensor, bag_values: list[Tensor], bag_offsets: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Wide contributions (B, T), in the order of `Layout.wide_terms`, and deep logits (B,).

        Together the logit, before any correction.
        """
        terms = self.model.wide.terms(numerics, ids, bag_values, bag_offsets)
        deep = self.model.deep(numerics, ids, bag_values, bag_offsets)
        return torch.cat(terms, 1), deep.squeeze(1)


def _serving(layer: nn.Module) -> nn.Module:
    """A layer of the MLP behind the join, where every input is the call's own."""
    if isinstance(layer, nn.ReLU):
        return nn.ReLU(inplace=True)
    return nn.Identity() if isinstance(layer, nn.Dropout) else layer
