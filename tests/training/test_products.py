"""Products of layers by oneDNN against torch's own."""

from __future__ import annotations

import pytest
import torch

from training import products
from training.products import backward_input, backward_weight, linear_relu

SIZES = [(1, 3, 2), (512, 97, 64), (500, 64, 33), (0, 8, 4)]


@pytest.mark.parametrize(("rows", "width", "out"), SIZES)
@pytest.mark.parametrize("by", ["torch", "whatever is there"])
def test_products_are_those_of_the_linear_layer(
    rows: int, width: int, out: int, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "torch":
        monkeypatch.setattr(products, "_fused", None)
    torch.manual_seed(1)
    x, grad, weight, bias = (torch.randn(*size) for size in ((rows, width), (rows, out), (out, width), (out,)))
    found = linear_relu(x, weight, bias), backward_input(grad, weight), backward_weight(grad, x)
    x, grad, weight = x.double(), grad.double(), weight.double()
    for one, exact in zip(found, (torch.relu(x @ weight.t() + bias), grad @ weight, grad.t() @ x), strict=True):
        assert torch.allclose(one.double(), exact, atol=2e-4, rtol=1e-4)


def test_products_of_a_part_of_a_larger_batch_are_its_own() -> None:
    x, weight = torch.randn(600, 96), torch.randn(64, 96)
    part, bias = x[44:556], torch.zeros(64)
    assert torch.equal(linear_relu(part, weight, bias), linear_relu(part.clone(), weight, bias))
