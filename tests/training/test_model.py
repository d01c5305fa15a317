"""The module: its crosses, its scripted twin, its starting point."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from service.scoring.encoded import Encoded
from service.scoring.features import FeatureEncoder
from service.scoring.schema import FeatureSchema
from tests.training.tiny_data import CROSSES, FEATURES, clicks, items
from training.crosses import CrossIds, mix64
from training.fold import folded
from training.model import BatchNorm, WideDeep


def tensors(encoded: Encoded) -> tuple[Any, ...]:
    values = [torch.from_numpy(bag.values) for bag in encoded.bags]
    offsets = [torch.from_numpy(bag.offsets) for bag in encoded.bags]
    return torch.from_numpy(encoded.numerics), torch.from_numpy(encoded.ids), values, offsets


@pytest.fixture(scope="module")
def encoder() -> FeatureEncoder:
    return FeatureEncoder.fit(FeatureSchema.parse(FEATURES, CROSSES, unit="user_id", item="item_id"), table())


def table() -> pa.Table:
    rows, place = clicks(), {key: n for n, key in enumerate(items().column("item_id").to_pylist())}
    index = pa.array([place[key] for key in rows.column("item_id").to_pylist()])
    for name in ("genres", "price"):
        rows = rows.append_column(name, items().column(name).take(index))
    return rows


def test_an_exact_cross_gives_every_combination_its_own_row() -> None:
    cross = CrossIds([(False, 0), (False, 1)], [4, 5], 20)
    pairs = list(itertools.product(range(4), range(5)))
    values, offsets = cross(torch.tensor(pairs), [], [])
    assert sorted(values.tolist()) == list(range(20))
    assert offsets.tolist() == list(range(21))


def test_a_cross_with_a_bag_gives_every_pair_of_the_row() -> None:
    cross = CrossIds([(False, 0), (True, 0)], [3, 7], 21)
    values, offsets = cross(torch.tensor([[2], [0]]), [torch.tensor([1, 4, 6])], [torch.tensor([0, 2, 3])])
    assert values.tolist() == [2 * 7 + 1, 2 * 7 + 4, 6]
    assert offsets.tolist() == [0, 2, 3]


def test_a_hashed_cross_spreads_evenly_and_stays_in_its_table() -> None:
    cross = CrossIds([(False, 0), (False, 1)], [1000, 1000], 64)
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 1000, (50_000, 2)))
    counts = torch.bincount(cross(ids, [], [])[0], minlength=64)
    assert len(counts) == 64
    assert counts.min() > 50_000 / 64 * 0.8


def test_the_mix_is_that_of_splitmix64() -> None:
    # splitmix64 seeded with 0 gives e220a8397b1dcdaf first: the mix of its increment 9e3779b97f4a7c15.
    mixed = mix64(torch.tensor([0x9E3779B97F4A7C15 - (1 << 64)]))
    assert int(mixed) % (1 << 64) == 0xE220A8397B1DCDAF


def test_three_huge_columns_do_not_collapse_onto_each_other() -> None:
    size = 1 << 30
    cross = CrossIds([(False, 0), (False, 1), (False, 2)], [size] * 3, 1 << 30)
    first = torch.stack([torch.arange(2000) * 4, torch.zeros(2000), torch.zeros(2000)], 1).long()
    assert len(set(cross(first, [], [])[0].tolist())) > 1990


def test_scripted_and_eager_models_score_alike(encoder: FeatureEncoder) -> None:
    torch.manual_seed(1)
    model = WideDeep(encoder.layout, (8, 4), 0.2).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.*", category=DeprecationWarning)
        scripted = torch.jit.script(model)
    encoded = encoder.encode_table(table())
    with torch.inference_mode():
        assert torch.allclose(model(*tensors(encoded)), scripted(*tensors(encoded)), atol=1e-7)


def test_a_fresh_model_starts_at_the_base_rate(encoder: FeatureEncoder) -> None:
    model = WideDeep(encoder.layout, (8, 4), 0.0).eval()
    torch.nn.init.zeros_(model.mlp[-1].weight)  # type: ignore[arg-type]  # the head is a layer
    model.start_at(0.02)
    scores = model(*tensors(encoder.encode_table(table())))
    assert scores.detach().numpy() == pytest.approx(0.02, abs=1e-6)


def test_gradients_of_tables_touch_the_batchs_rows_alone(encoder: FeatureEncoder) -> None:
    model = WideDeep(encoder.layout, (8, 4), 0.0)
    model.logits(*tensors(encoder.encode_table(table().slice(0, 4)))).sum().backward()  # type: ignore[no-untyped-call]
    for part in model.tables:
        gradient = part.weight.grad
        assert gradient is not None
        assert gradient.is_sparse
        assert gradient.coalesce().indices().size(1) < part.weight.size(0) / 2  # type: ignore[operator]  # a table


def test_batch_normalisation_folded_into_its_layers_scores_alike(encoder: FeatureEncoder) -> None:
    torch.manual_seed(2)
    model = WideDeep(encoder.layout, (8, 4), 0.0, "batch")
    inputs = tensors(encoder.encode_table(table()))
    for _ in range(20):
        model.logits(*inputs)  # running statistics settle
    model.eval()
    twin = folded(model)
    assert not any(isinstance(layer, BatchNorm) for layer in twin.mlp)
    assert torch.allclose(model(*inputs), twin(*inputs), atol=1e-6)


def test_a_batch_of_one_row_passes_batch_normalisation() -> None:
    norm = BatchNorm(3)
    row = torch.tensor([[1.0, 2.0, 3.0]])
    assert norm(row).detach().flatten().tolist() == pytest.approx([1, 2, 3], abs=1e-4)  # running mean 0, variance 1
