"""Corrections of a model's log-odds, fitted on the validation part and exported inside the module.

Each is increasing: it changes no order, and so no AUC, but what a score means. Where the parts follow each other in
time, the later half of the validation part alone is used: scores grow too sure with the distance from the training
part, and what will be served is further away than validation's first rows, which hold its very sessions.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from sklearn.isotonic import isotonic_regression
from torch import Tensor, nn

from training.batches import Batch
from training.model import WideDeep

Doubles = npt.NDArray[np.float64]
GROUPS = 100  # of equal size, that an isotonic correction sees: fewer rows than some hundreds a group would be noise
FEWEST_A_GROUP = 50
FEWEST_IN_HALF = 1000  # rows of the later half; where it has fewer, the whole part is used
SLOPES = (0.05, 20.0)  # of a Platt correction; beyond, the validation part has not taught it
ROWS = 65_536


class Rows(Protocol):
    """Rows that come in batches."""

    def slices(self, size: int) -> Iterator[Batch]: ...


class Platt(nn.Module):
    """a·z + b of a logit z (Platt 1999)."""

    def __init__(self, scale: float, shift: float) -> None:
        super().__init__()
        self.scale, self.shift = scale, shift

    def forward(self, logits: Tensor) -> Tensor:
        return logits * self.scale + self.shift


class Isotonic(nn.Module):
    """Linear between knots (K,), of slope 1 beyond the ends; strictly increasing, so that no ties are made."""

    places: Tensor
    values: Tensor

    def __init__(self, places: Tensor, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("places", places)
        self.register_buffer("values", values)

    def forward(self, logits: Tensor) -> Tensor:
        inside = torch.clamp(logits, self.places[0], self.places[-1])
        right = torch.searchsorted(self.places, inside).clamp(1, self.places.size(0) - 1)
        left = right - 1
        slope = (self.values[right] - self.values[left]) / (self.places[right] - self.places[left])
        return self.values[left] + (inside - self.places[left]) * slope + (logits - inside)


def correct(
    model: WideDeep,
    kind: str,
    valid: Rows,
    labels: npt.NDArray[np.float32],
    times: npt.NDArray[np.float64] | None = None,
) -> dict[str, Any]:
    """Fit `kind` (none, platt, isotonic) to the validation rows and set it in the model; returns what was fitted.

    `times` of the rows are given where the parts follow each other in time.
    """
    if kind == "none":
        return {"kind": "none"}
    used = _later(times) if times is not None else slice(None)
    logits, clicked = _logits(model, valid)[used], labels[used] > 0
    if clicked.all() or not clicked.any():
        return {"kind": "none", "reason": "the validation part has one class only"}
    record: dict[str, Any]
    if kind == "platt":
        scale, shift = platt(logits, clicked)
        model.calibration, record = Platt(scale, shift), {"scale": scale, "shift": shift}
    else:
        places, values = isotonic(logits, clicked)
        if len(places) < 2:
            return {"kind": "none", "reason": "too few validation rows"}
        model.calibration = Isotonic(torch.from_numpy(places).float(), torch.from_numpy(values).float())
        record = {"knots": len(places)}
    model.calibration.to(next(model.parameters()).device)
    return {"kind": kind, "fitted_on": "valid", "rows": len(logits), **record}


def _later(times: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Which rows are of the later half."""
    later: npt.NDArray[np.bool_] = times > np.median(times)
    return later if later.sum() >= FEWEST_IN_HALF else np.ones(len(times), np.bool_)


def uncorrected(model: WideDeep, rows: Rows) -> npt.NDArray[np.float32]:
    """Probabilities (rows,) that the model would give without its correction."""
    return (1 / (1 + np.exp(-np.clip(_logits(model, rows), -80, 80)))).astype(np.float32)


def platt(logits: Doubles, labels: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Scale and shift of the least log loss, by Newton's method; Platt's targets keep it finite where classes part."""
    positives = int(labels.sum())
    high, low = (positives + 1) / (positives + 2), 1 / (len(labels) - positives + 2)
    target = np.where(labels, high, low)
    design = np.column_stack([logits, np.ones(len(logits))])
    found = np.array([1.0, 0.0])
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(design @ found, -40, 40)))
        gradient = design.T @ (p - target)
        curvature = design.T @ (design * (p * (1 - p))[:, None]) + 1e-9 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        found = found - np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-9:
            break
    scale = float(np.clip(found[0], *SLOPES))
    if scale != found[0]:  # the shift alone, then
        scale, found[1] = 1.0, _shift(logits, float(labels.mean()))
    return scale, float(found[1])


def isotonic(logits: Doubles, labels: npt.NDArray[np.bool_]) -> tuple[Doubles, Doubles]:
    """Knots (K,) and corrected log-odds (K,), both strictly increasing: one for each pooled block of groups."""
    order = np.argsort(logits, kind="stable")
    groups = int(np.clip(len(logits) // FEWEST_A_GROUP, 1, GROUPS))
    sizes = np.array([len(part) for part in np.array_split(order, groups)])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    centre = np.add.reduceat(logits[order], starts) / sizes
    # One row of the base rate in each group: a rate of 0 or 1 has no log-odds.
    rate = (np.add.reduceat(labels[order].astype(np.float64), starts) + labels.mean()) / (sizes + 1)
    pooled = isotonic_regression(rate, sample_weight=sizes.astype(np.float64))
    blocks = np.unique(pooled, return_inverse=True)[1]
    weight = np.bincount(blocks, sizes)
    places, values = np.bincount(blocks, sizes * centre) / weight, np.bincount(blocks, sizes * pooled) / weight
    keep = np.concatenate([[True], np.diff(places) > 1e-3])  # nearer knots would give a slope that float32 cannot keep
    return places[keep], np.log(values / (1 - values))[keep]


def _shift(logits: Doubles, rate: float) -> float:
    """What added to the logits gives them the rate as their mean probability."""
    low, high = -40.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = float((1 / (1 + np.exp(-np.clip(logits + middle, -40, 40)))).mean())
        low, high = (middle, high) if mean < rate else (low, middle)
    return (low + high) / 2


def _logits(model: WideDeep, rows: Rows) -> Doubles:
    model.eval()
    with torch.inference_mode():
        found = [(model.logits(*batch.inputs) + model.correction).double().cpu().numpy() for batch in rows.slices(ROWS)]
    return np.concatenate(found)
