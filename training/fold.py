"""What is constant in serving, folded into the layers: batch normalisation and the correction of the probability."""

from __future__ import annotations

import copy

import torch
from torch import nn

from training.model import BatchNorm, WideDeep


def folded(model: WideDeep) -> WideDeep:
    """A twin that scores as `model` does in eval mode; it shares all but the layers that change."""
    layers: list[nn.Module] = []
    for layer in model.mlp:
        if isinstance(layer, BatchNorm):
            linear = layers.pop()
            assert isinstance(linear, nn.Linear)  # the model puts a norm behind a layer
            layers.append(_scaled(linear, layer))
        else:
            layers.append(layer)
    if model.correction:
        head = copy.deepcopy(layers[-1])
        assert isinstance(head, nn.Linear)  # the MLP ends in its head
        with torch.no_grad():
            head.bias.add_(model.correction)
        layers[-1] = head
    twin = copy.copy(model)
    twin._modules = {**model._modules, "mlp": nn.Sequential(*layers)}
    twin.correction = 0.0
    return twin


def _scaled(linear: nn.Linear, norm: BatchNorm) -> nn.Linear:
    """γ·(Wx + b − μ)/σ + β as one layer, computed in float64."""
    assert norm.running_var is not None  # a norm of this model keeps them
    assert norm.running_mean is not None
    with torch.no_grad():
        scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
        made = nn.Linear(linear.in_features, linear.out_features)
        made.weight.copy_(linear.weight.double() * scale[:, None])
        made.bias.copy_((linear.bias.double() - norm.running_mean.double()) * scale + norm.bias.double())
    return made.train(linear.training)
