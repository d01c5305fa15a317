"""Gradients by hand against autograd's; rows changed natively against the same in torch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from torch.nn import functional as F

from service.scoring.features import FeatureEncoder
from tests.training.tiny_data import clicks, config, items
from training import backprop, optimizers
from training.backprop import Backprop
from training.batches import Batch
from training.config import Config
from training.model import WideDeep
from training.optimizers import Ftrl, RowAdagrad, RowAdam, RowOptimizer, RowwiseAdagrad, row_sums
from training.rows import Lookups, Place, native

pytestmark = pytest.mark.skipif(native is None, reason="installed without a compiler")

ROWS = 2500  # four blocks of 512 and a rest


def rows(count: int) -> pa.Table:
    table, known = clicks(rows=count), items()
    at = pc.index_in(table["item_id"], known["item_id"])
    for name in ("genres", "price"):
        table = table.append_column(name, known[name].combine_chunks().take(at.combine_chunks()))
    return table


def made(**changes: Any) -> tuple[WideDeep, Batch]:
    """A model with id columns and bags of both sides and crosses, its weights all drawn, and rows of it."""
    said: Config = config(**{"model": {"dropout": 0.0}, **changes})
    table = rows(ROWS)
    encoder = FeatureEncoder.fit(said.schema, table)
    torch.manual_seed(1)
    model = WideDeep(encoder.layout, said.model.hidden, said.model.dropout, said.model.norm)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.1)
    labels = (torch.rand(ROWS) < 0.3).float().numpy()
    return model, Batch.of(encoder.encode_table(table), labels, "cpu")


def by_hand(model: WideDeep, *batches: Batch) -> torch.Tensor:
    learn = Backprop.of(model, ROWS, batches[0])
    assert learn is not None
    model.zero_grad()
    return torch.stack([learn(batch) for batch in batches]).sum()


def by_autograd(model: WideDeep, batch: Batch) -> torch.Tensor:
    model.zero_grad()
    loss = F.binary_cross_entropy_with_logits(model.logits(*batch.inputs), batch.labels, reduction="sum")
    (loss / ROWS).backward()  # type: ignore[no-untyped-call]  # untyped in torch
    return loss.detach()


def gradients(model: WideDeep) -> dict[str, torch.Tensor]:
    found = {name: one.grad for name, one in model.named_parameters() if one.numel()}
    assert all(grad is not None for grad in found.values()), found
    return {name: grad.to_dense() for name, grad in found.items() if grad is not None}


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("hidden", [[64, 32], [16, 8], [12]])
def test_loss_and_gradients_are_autograds(hidden: list[int], parts: int) -> None:
    model, batch = made(model={"hidden": hidden, "dropout": 0.0})
    wanted = by_autograd(model, batch)
    gradient = gradients(model)
    assert float(by_hand(model, *batch.slices(ROWS // parts))) == pytest.approx(float(wanted), rel=1e-5)
    found = gradients(model)
    for name, value in gradient.items():
        assert torch.allclose(found[name], value, atol=1e-6, rtol=1e-4), name


def test_a_batch_in_training_gives_each_row_of_a_table_once() -> None:
    model, batch = made()
    by_hand(model, batch)
    grad = model.tables[0].weight.grad
    assert isinstance(grad, torch.Tensor)
    touched = grad._indices()[0].tolist()
    assert grad.is_coalesced()
    assert len(touched) == len(set(touched))


def test_with_dropout_the_gradient_is_the_slope_of_the_loss_with_the_same_units_dropped() -> None:
    model, batch = made(model={"dropout": 0.4})
    losses, step = [], 1e-2
    torch.manual_seed(3)
    by_hand(model, batch)
    first = model.mlp[0].weight
    assert isinstance(first, torch.nn.Parameter)
    assert first.grad is not None
    slope, way = first.grad.clone(), first.grad / first.grad.norm()
    for sign in (1, -1):
        first.data.add_(way, alpha=sign * step)
        torch.manual_seed(3)
        losses.append(float(by_hand(model, batch)) / ROWS)
        first.data.add_(way, alpha=-sign * step)
    assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(float((slope * way).sum()), rel=0.02)


def test_what_it_does_not_know_is_left_to_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = made(model={"norm": "batch"})
    assert Backprop.of(model, ROWS, batch) is None
    model, batch = made()
    assert Backprop.of(model.double(), ROWS, batch) is None
    model, batch = made()
    model.more = torch.nn.Linear(1, 1)
    assert Backprop.of(model, ROWS, batch) is None
    model, batch = made()
    monkeypatch.setattr(backprop, "native", None)
    assert Backprop.of(model, ROWS, batch) is None


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_of_a_table_do_not_depend_on_the_threads(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    ids, grad = torch.randint(0, 50, (300, 3), dtype=torch.int32), torch.randn(300, 12)
    places = [Place(n, 50 * n, 4 * n) for n in range(3)]
    rows, sums = Lookups(ids, []).sums(places, grad, 4, mean=False)
    torch.set_num_threads(before)
    keys = (ids + torch.tensor([0, 50, 100])).flatten()
    wanted = torch.sparse_coo_tensor(keys[None].long(), grad.view(-1, 4), (150, 4), check_invariants=True).to_dense()
    found = torch.zeros(150, 4).index_copy_(0, rows, sums)
    assert len(rows) == len(set(rows.tolist()))
    assert torch.allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("kind", ["ftrl", "adagrad", "rowwise", "adam"])
def test_rows_change_natively_as_they_do_in_torch(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained() -> tuple[torch.Tensor, ...]:
        torch.manual_seed(0)
        table = torch.nn.Parameter(torch.randn(40, 5))
        makers: dict[str, type[RowOptimizer]] = {"adagrad": RowAdagrad, "rowwise": RowwiseAdagrad, "adam": RowAdam}
        optimizer = (
            Ftrl([table], lr=0.1, l1=0.2, l2=0.5, examples=8) if kind == "ftrl" else makers[kind]([table], lr=0.1)
        )
        optimizer.param_groups[0]["decay"] = 0.0 if kind == "ftrl" else 0.3
        for _ in range(8):
            rows = torch.randint(0, 40, (1, 30))
            table.grad = torch.sparse_coo_tensor(rows, torch.randn(30, 5), (40, 5), check_invariants=True)
            optimizer.step()
        return table.detach(), *(optimizer.state[table][name] for name in optimizer.slots)

    found = trained()
    monkeypatch.setattr(optimizers, "native", None)
    for one, wanted in zip(found, trained(), strict=True):
        assert torch.allclose(one, wanted, atol=1e-5)


def test_gradients_of_two_processes_are_summed_by_row() -> None:
    twice = torch.sparse_coo_tensor(torch.tensor([[4, 1, 4]]), torch.ones(3, 2), (6, 2), check_invariants=True)
    rows, sums = row_sums(twice)
    assert dict(zip(rows.tolist(), sums[:, 0].tolist(), strict=True)) == {1: 1.0, 4: 2.0}
