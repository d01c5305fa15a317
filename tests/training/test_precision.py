"""Mixed precision: the scaler sees all optimizers as one, and float16 trains, stops and goes on like float32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from service.scoring.artifact import read_manifest
from tests.training.test_checkpoint import MADE, same, stopped, weights
from tests.training.tiny_data import config, fit, write_data
from training import train
from training.optimizers import Ftrl, RowAdagrad
from training.precision import Precision


def parts() -> tuple[nn.Parameter, nn.Parameter, nn.Linear]:
    """A wide table, an embedding table, a layer."""
    torch.manual_seed(0)
    return nn.Parameter(torch.zeros(6, 1)), nn.Parameter(torch.randn(6, 4)), nn.Linear(8, 1)


def loss_of(wide: nn.Parameter, table: nn.Parameter, layer: nn.Linear) -> Tensor:
    ids = torch.tensor([[0, 1], [1, 1], [3, 0]])
    deep = layer(F.embedding(ids, table, sparse=True).flatten(1))
    return (deep + F.embedding(ids, wide, sparse=True).sum(1)).float().square().mean()


def precision(amp: str, wide: nn.Parameter, table: nn.Parameter, layer: nn.Linear) -> Precision:
    made = [
        Ftrl([wide], lr=0.1, l1=0.0, l2=0.0),
        RowAdagrad([table], lr=0.1),
        torch.optim.Adam(layer.parameters(), lr=0.1),
    ]
    return Precision(amp, "cpu", made)


def test_scaled_sparse_gradients_step_as_unscaled_ones() -> None:
    found = []
    for amp in ("off", "fp16"):
        wide, table, layer = parts()
        one = precision(amp, wide, table, layer)
        for _ in range(3):
            for parameter in (wide, table, *layer.parameters()):
                parameter.grad = None
            one.scaled(loss_of(wide, table, layer)).backward()  # type: ignore[no-untyped-call]  # untyped in torch
            one.step()
        found.append([parameter.detach() for parameter in (wide, table, *layer.parameters())])
    for off, fp16 in zip(*found, strict=True):
        assert torch.allclose(off, fp16, atol=1e-6)


@pytest.mark.parametrize("which", ["wide", "table", "layer"])
def test_one_gradient_that_is_not_finite_holds_back_every_table_and_layer(which: str) -> None:
    wide, table, layer = parts()
    one = precision("fp16", wide, table, layer)
    kept = [parameter.detach().clone() for parameter in (wide, table, *layer.parameters())]
    one.scaled(loss_of(wide, table, layer)).backward()  # type: ignore[no-untyped-call]  # untyped in torch
    gradient = {"wide": wide, "table": table, "layer": layer.weight}[which].grad
    assert gradient is not None
    (gradient._values() if gradient.is_sparse else gradient)[0, 0] = torch.inf
    before = one.watched()["amp/scale"]
    one.step()
    for parameter, old in zip((wide, table, *layer.parameters()), kept, strict=True):
        assert torch.equal(parameter, old)
    assert one.watched() == {"amp/scale": before / 2, "amp/skipped": 1.0}


def test_the_scale_goes_on_where_it_was() -> None:
    one, other = precision("fp16", *parts()), precision("fp16", *parts())
    state = one.state_dict() | {"scale": 8.0}
    other.load_state_dict(state)
    assert other.state_dict() == state


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_half_precision_trains_to_nearly_the_same_loss(tmp_path: Path, amp: str) -> None:
    data = write_data(tmp_path / "data")
    whole = fit(config(model={"dropout": 0.0}), data, tmp_path / "a")
    half = train.main(config(model={"dropout": 0.0}), data, tmp_path / "b", "v1", device="cpu", command="", amp=amp)
    one, other = (read_manifest(folder)["epochs"][-1]["loss"] for folder in (whole, half))
    assert one != other
    assert one == pytest.approx(other, abs=1e-2)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # reading the module's weights, as elsewhere
def test_a_fit_in_float16_that_is_stopped_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    made, data = config(**MADE), write_data(tmp_path / "data")
    unbroken = train.main(made, data, tmp_path / "a", "v1", device="cpu", command="", amp="fp16")
    stopped(made, data, tmp_path / "b", 20, amp="fp16")
    resumed = train.main(made, data, tmp_path / "b", "v1", device="cpu", command="", amp="fp16", resume=True)
    assert same(weights(resumed), weights(unbroken))
