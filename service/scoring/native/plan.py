"""What a module computes with, as plain arrays: read off a module of ours, or not at all.

user.* item.*   sizes (N, C, M, width, H); weight and bias, packed; tables; vectors; wide_columns; numeric_columns
                and numeric_weight; crosses; parts: as `Side` of _side.c takes them
layer0.* ..     weight and bias of each layer behind the join, packed, and sizes (inputs, outputs)
wide, pairs, correction     as `Join` of _join.c takes them
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from service.scoring.torchscript import Module

Plan = dict[str, npt.NDArray[Any]]

PANEL = 32  # as in _halves.h
MEMBERS = 16
# What the layers behind the join may be made of; what the names stand for is training's: halves.py and sides.py.
_BEHIND = ("ReLU", "Identity", "Linear")


def plan_of(module: Module) -> Plan | None:
    """The plan of a module that is not frozen, its tables not copied; None where it is not one that is known here."""
    try:
        return _plan(module) if module.original_name == "HalvedWideDeep" else None
    except (AttributeError, _OtherModule):  # of an earlier release, or with parts that came later
        return None


class _OtherModule(Exception):
    """The module has something that there is no native code for."""


def _plan(module: Any) -> Plan:
    model = module.model
    numerics, bags = int(model.left_numerics), sum(int(table.left_bags) for table in model.tables.children())
    ids = sum(len(table.columns) for table in module.left.tables.children())
    plan = _side("user", module.left, numerics, ids, bags)
    right = module.right
    width = sum(int(table.width) for table in right.tables.children())
    ids = sum(len(table.columns) for table in right.tables.children())
    bags = sum(len(table.bags) for table in right.tables.children())
    plan |= _side("item", right, right.weight.size(1) - width, ids, bags)
    for n, layer in enumerate(_layers(module.rest)):
        plan |= {f"layer{n}.{name}": array for name, array in layer.items()}
    if "layer0.sizes" not in plan:
        raise _OtherModule
    plan["wide"] = _array(model.wide.weight)
    pairs = [(pair.buckets, int(pair.exact), pair.start) for pair in module.pairs.children()]
    plan["pairs"] = np.array(pairs, np.int64).reshape(-1)
    plan["correction"] = _correction(model.calibration)
    return plan


def _side(name: str, side: Any, numerics: int, ids: int, bags: int) -> Plan:
    plan: Plan = {}
    vectors: list[tuple[int, int, int, int, int]] = []
    place = numerics
    for n, table in enumerate(side.tables.children()):
        plan[f"tables{n}"] = _array(table.weight)
        dim = table.weight.size(1)
        for is_bag, column, start in _columns(table):
            vectors.append((is_bag, column, start, n, place))
            place += dim
    outputs, width = side.weight.shape
    if place != width:
        raise _OtherModule
    plan["sizes"] = np.array([numerics, ids, bags, width, outputs])
    plan["weight"], plan["bias"] = _packed(_array(side.weight), _array(side.bias))
    plan["vectors"] = np.array(vectors, np.int64).reshape(-1)
    plan["wide_columns"] = np.array(list(_columns(side)), np.int64).reshape(-1)
    plan["numeric_columns"] = _array(side.numeric_columns)
    plan["numeric_weight"] = _array(side.numeric_weight)[_array(side.numeric_rows)].reshape(-1)
    crosses = [_cross(one.part, one.buckets, one.exact, one.start) for one in side.crosses.children()]
    parts = [_cross(one, 1, True, 0) for one in side.parts.children()]
    plan["crosses"], plan["parts"] = np.array([*chain(*crosses)], np.int64), np.array([*chain(*parts)], np.int64)
    return {f"{name}.{key}": array for key, array in plan.items()}


def _columns(part: Any) -> Iterator[tuple[int, int, int]]:
    """(is a bag, column, first row in the table) of the id columns and bags of a part."""
    for column, start in zip(part.columns.tolist(), part.starts.tolist(), strict=True):
        yield 0, column, start
    for column, start in zip(part.bags, part.bag_starts, strict=True):
        yield 1, column, start


def _cross(part: Any, buckets: int, exact: bool, start: int) -> list[int]:
    members = list(zip(part.is_bag, part.index, part.strides, strict=True))
    if len(members) > MEMBERS:
        raise _OtherModule
    return [len(members), buckets, int(exact), start, *(int(number) for member in members for number in member)]


def _layers(rest: Any) -> Iterator[Plan]:
    """Each linear layer; before each stands a ReLU, and nothing that does anything but these."""
    layers = list(rest.children())
    if any(layer.original_name not in _BEHIND for layer in layers):
        raise _OtherModule
    acting = [layer for layer in layers if layer.original_name != "Identity"]
    for relu, linear in zip(acting[::2], acting[1::2], strict=True) if len(acting) % 2 == 0 else _refuse():
        if (relu.original_name, linear.original_name) != ("ReLU", "Linear"):
            raise _OtherModule
        weight, bias = _array(linear.weight), _array(linear.bias)
        sizes = np.array(weight.shape[::-1])
        if len(weight) > 1:
            weight, bias = _packed(weight, bias)
        yield {"sizes": sizes, "weight": weight, "bias": bias}


def _refuse() -> Iterator[Any]:
    raise _OtherModule


def _correction(calibration: Any) -> npt.NDArray[np.float64]:
    """Scale and shift of the logit."""
    if calibration.original_name == "Identity":
        return np.array([1.0, 0.0])
    if calibration.original_name == "Platt":
        return np.array([calibration.scale, calibration.shift])
    raise _OtherModule


def _array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    return tensor.detach().contiguous().numpy()


def _packed(weight: npt.NDArray[Any], bias: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Weight (outputs, inputs) as panels (ceil(outputs / 32), inputs, 32), and the bias (ceil(outputs / 32) * 32,)."""
    outputs, inputs = weight.shape
    panels = -(-outputs // PANEL)
    whole, biases = np.zeros((panels * PANEL, inputs), np.float32), np.zeros(panels * PANEL, np.float32)
    whole[:outputs], biases[:outputs] = weight, bias
    return np.ascontiguousarray(whole.reshape(panels, PANEL, inputs).transpose(0, 2, 1)), biases


def layers_of(plan: Plan) -> Iterator[tuple[int, int, npt.NDArray[Any], npt.NDArray[Any]]]:
    """(inputs, outputs, weight, bias) of each layer of a plan."""
    for n in count():
        if f"layer{n}.sizes" not in plan:
            return
        inputs, outputs = plan[f"layer{n}.sizes"].tolist()
        yield inputs, outputs, plan[f"layer{n}.weight"], plan[f"layer{n}.bias"]
