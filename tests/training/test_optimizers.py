"""FTRL against Algorithm 1 written out by hand; row optimizers against torch's own."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from service.scoring.features import FeatureEncoder
from service.scoring.schema import FeatureSchema
from training import optimizers
from training.config import TrainConfig
from training.model import WideDeep
from training.optimizers import Ftrl, RowAdagrad, RowAdam, RowwiseAdagrad, row_sums

GRADIENTS = [0.5, -1.0, 0.25, 2.0, -0.125]


def ftrl_by_hand(gradients: list[float], *, alpha: float, beta: float, l1: float, l2: float) -> float:
    """McMahan et al. 2013, Algorithm 1, one coordinate."""
    z = n = w = 0.0
    for g in gradients:
        sigma = (math.sqrt(n + g * g) - math.sqrt(n)) / alpha
        z += g - sigma * w
        n += g * g
        w = 0.0 if abs(z) <= l1 else -(z - math.copysign(l1, z)) / ((beta + math.sqrt(n)) / alpha + l2)
    return w


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.1, 1.0), (1.6, 0.5)])
def test_ftrl_is_algorithm_1(l1: float, l2: float) -> None:
    weight = nn.Parameter(torch.zeros(1, 1, dtype=torch.float64))
    optimizer = Ftrl([weight], lr=0.3, l1=l1, l2=l2)
    for gradient in GRADIENTS:
        weight.grad = torch.full((1, 1), gradient, dtype=torch.float64)
        optimizer.step()
    wanted = ftrl_by_hand(GRADIENTS, alpha=0.3, beta=1.0, l1=l1, l2=l2)
    assert float(weight.detach()) == pytest.approx(wanted, abs=1e-12)


def test_ftrl_pins_what_carries_no_evidence_to_exact_zero() -> None:
    weight = nn.Parameter(torch.zeros(2, 1))
    optimizer = Ftrl([weight], lr=0.3, l1=1.0, l2=0.0)
    for sign in (1.0, -1.0) * 10:
        weight.grad = torch.tensor([[0.4 * sign], [0.4]])
        optimizer.step()
    assert float(weight.detach()[0]) == 0.0
    assert float(weight.detach()[1]) < 0


def embedding_gradient(table: nn.Parameter, rows: list[int]) -> None:
    F.embedding(torch.tensor(rows), table, sparse=True).pow(2).sum().backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("kind", ["ftrl", "adagrad", "adam"])
def test_rows_that_a_batch_lacks_keep_weights_and_state(kind: str) -> None:
    table = nn.Parameter(torch.ones(5, 3))
    if kind == "ftrl":
        table = nn.Parameter(torch.zeros(5, 3))  # where its state is 0
    start = table.detach().clone()
    made = {"ftrl": Ftrl([table], lr=0.1, l1=0.0, l2=0.0), "adagrad": RowAdagrad([table], lr=0.1)}
    optimizer = made.get(kind) or RowAdam([table], lr=0.1, whole_up_to=4)
    table.grad = torch.sparse_coo_tensor(torch.tensor([[1, 3, 3]]), torch.ones(3, 3), (5, 3), check_invariants=True)
    optimizer.step()
    assert torch.equal(table[[0, 2, 4]], start[[0, 2, 4]])
    assert (table[[1, 3]] != start[[1, 3]]).all()
    for name in optimizer.slots:
        assert (optimizer.state[table][name][[0, 2, 4]] == 0).all()


@pytest.mark.parametrize(("own", "theirs"), [(RowAdagrad, torch.optim.Adagrad), (RowAdam, torch.optim.Adam)])
def test_dense_gradients_step_as_torchs_own_optimizer(own: type, theirs: type) -> None:
    torch.manual_seed(0)
    start = torch.randn(4, 3)
    one, other = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    mine, torchs = own([one], lr=0.05), theirs([other], lr=0.05)
    for _ in range(6):
        gradient = torch.randn(4, 3)
        one.grad, other.grad = gradient.clone(), gradient.clone()
        mine.step()
        torchs.step()
    assert torch.allclose(one, other, atol=1e-7)


def test_sparse_adagrad_steps_as_the_dense_one_on_touched_rows() -> None:
    table, dense = nn.Parameter(torch.ones(5, 2)), nn.Parameter(torch.ones(5, 2))
    sparse, whole = RowAdagrad([table], lr=0.1), RowAdagrad([dense], lr=0.1)
    for rows in ([0, 1, 1], [1, 4], [0, 0, 0]):
        table.grad = dense.grad = None
        embedding_gradient(table, rows)
        F.embedding(torch.tensor(rows), dense).pow(2).sum().backward()  # type: ignore[no-untyped-call]
        sparse.step()
        whole.step()
    assert torch.allclose(table, dense, atol=1e-7)


def test_adam_steps_a_small_table_whole_as_torchs_own_with_weight_decay() -> None:
    table, dense = nn.Parameter(torch.ones(5, 2)), nn.Parameter(torch.ones(5, 2))
    mine, torchs = RowAdam([table], lr=0.1, whole_up_to=5), torch.optim.Adam([dense], lr=0.1, weight_decay=0.5)
    mine.param_groups[0]["decay"] = 0.5
    for rows in ([0, 1, 1], [1, 4], [0, 0, 0]):
        table.grad = dense.grad = None
        embedding_gradient(table, rows)
        F.embedding(torch.tensor(rows), dense).pow(2).sum().backward()  # type: ignore[no-untyped-call]
        mine.step()
        torchs.step()
    assert torch.allclose(table, dense, atol=1e-6)
    assert (table[[2, 3]] < 1).all()  # never touched: the decay alone


def test_rows_of_a_sparse_gradient_are_summed_as_coalesce_does() -> None:
    torch.manual_seed(0)
    gradient = torch.sparse_coo_tensor(torch.randint(0, 9, (1, 50)), torch.randn(50, 3), (12, 3), check_invariants=True)
    rows, sums = row_sums(gradient)
    wanted = gradient.coalesce()
    order = rows.argsort()
    assert rows[order].tolist() == wanted.indices()[0].tolist()
    assert torch.allclose(sums[order], wanted.values(), atol=1e-5)


def test_a_sparse_gradient_of_no_rows_changes_nothing() -> None:
    table = nn.Parameter(torch.ones(3, 2))
    table.grad = torch.sparse_coo_tensor(
        torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0, 2), (3, 2), check_invariants=True
    )
    RowAdam([table], lr=0.1).step()
    assert (table == 1).all()


def test_decay_adds_the_weights_to_the_gradient_of_touched_rows_alone() -> None:
    table = nn.Parameter(torch.tensor([[2.0], [3.0]]))
    optimizer = RowAdagrad([table], lr=0.1)
    optimizer.param_groups[0]["decay"] = 0.5
    table.grad = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([[1.0]]), (2, 1), check_invariants=True)
    optimizer.step()
    # The gradient is 1 + 0.5 · 2; Adagrad's first step is the learning rate, whatever its size.
    assert optimizer.state[table]["sum"].flatten().tolist() == [4.0, 0.0]
    assert table.flatten().tolist() == pytest.approx([1.9, 3.0])


def test_rowwise_adagrad_divides_by_the_root_of_the_rows_mean_square() -> None:
    table = nn.Parameter(torch.zeros(3, 2))
    optimizer = RowwiseAdagrad([table], lr=0.1)
    for _ in range(2):
        gradient = torch.tensor([[3.0, 1.0]])
        table.grad = torch.sparse_coo_tensor(torch.tensor([[1]]), gradient, (3, 2), check_invariants=True)
        optimizer.step()
    # The mean square is (9 + 1) / 2 = 5, the sum 5 and then 10.
    step = 0.1 * (5**-0.5 + 10**-0.5)
    assert table[1].tolist() == pytest.approx([-3 * step, -step])
    assert optimizer.state[table]["sum"].flatten().tolist() == [0, 10, 0]


def test_adagrad_goes_by_rows_for_large_tables_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "ROWWISE_FROM", 50)
    features = [{"name": name, "kind": "categorical", "side": "user", "dim": dim} for name, dim in (("a", 4), ("b", 8))]
    table = pa.table({"a": [str(n) for n in range(60)], "b": ["x", "y"] * 30})
    model = WideDeep(FeatureEncoder.fit(FeatureSchema.parse(features), table).layout, (4,), 0.0)
    built = optimizers.build_optimizers(model, TrainConfig(embedding_l2=0.5))
    found = {type(one).__name__: one.param_groups[0] for one in built[1:3]}
    assert found["RowwiseAdagrad"]["params"] == [model.tables[0].weight]
    assert found["RowAdagrad"]["params"] == [model.tables[1].weight]
    assert all(group["decay"] == 0.5 for group in found.values())
