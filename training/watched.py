"""What TensorBoard shows of the model and its optimizers after an epoch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.optim import Optimizer

from training.model import WideDeep


def watched(model: WideDeep, optimizers: Sequence[Optimizer]) -> dict[str, float]:
    """Learning rates, mean norms of each table's rows, the wide weights' norm and how many of them are not 0."""
    found: dict[str, float] = {}
    for optimizer in optimizers:
        for n, group in enumerate(optimizer.param_groups):
            name = f"rate/{type(optimizer).__name__}{n or ''}"
            found[name if name not in found else f"{name}_{len(found)}"] = float(group["lr"])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("tables."):
                found[f"norm/{name}"] = float(parameter.norm(dim=1).mean())
        found["norm/wide"] = float(model.wide.weight.norm())
    wide = wide_weights(model)
    found["wide/share_not_zero"] = 1 - wide["zero"] / wide["weights"] if wide["weights"] else 0.0
    return found


def wide_weights(model: WideDeep) -> dict[str, int]:
    """How many weights the tables of the wide part hold, and how many are exactly 0, as FTRL's L1 leaves them."""
    return {"weights": model.wide.weight.numel(), "zero": int((model.wide.weight == 0).sum())}
