"""Tables and items' halves in files: what is mapped scores as what was read, and is shared, not copied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from service.scoring import engine as engine_module
from service.scoring.engine import Engine
from service.scoring.features import FeatureEncoder
from service.scoring.half_files import map_half, too_large
from tests.service.scoring.halved import LANES, encoder_of, items_of, save_model, users_of, whole_of


@pytest.fixture(scope="module")
def encoder() -> FeatureEncoder:
    return encoder_of(values=40_000)  # 40,000 x 8 floats: a table that is worth sharing


@pytest.fixture(scope="module")
def path(encoder: FeatureEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("module") / "model.pt"
    save_model(encoder, path)
    return path


@pytest.fixture(scope="module")
def folder(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mapped")
    Engine.save_mapped(path, folder)
    return folder


@pytest.mark.parametrize("lanes", LANES)
def test_an_attached_engine_scores_to_the_bit_as_a_loaded_one(
    path: Path, folder: Path, encoder: FeatureEncoder, lanes: int
):
    loaded, attached = Engine.load(path, "cpu", lanes=lanes), Engine.attach(folder, "cpu", lanes=lanes)
    whole, users, items = whole_of(encoder), users_of(encoder), items_of(encoder)
    rows, index = np.arange(20), np.arange(20) % 10
    assert np.array_equal(attached.forward(whole), loaded.forward(whole))
    assert np.array_equal(attached.forward(whole.slice(0, 3)), loaded.forward(whole.slice(0, 3)))
    found, wanted = (one.serve(users, one.items(items), rows, index) for one in (attached, loaded))
    assert np.array_equal(found, wanted)
    for found, wanted in zip(attached.explain(whole), loaded.explain(whole), strict=True):
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("lanes", LANES)
def test_an_attached_engines_tables_are_the_files_and_no_copy(folder: Path, encoder: FeatureEncoder, lanes: int):
    table = np.load(folder / "0000.npy", mmap_mode="r+")
    kept, engine = table.copy(), Engine.attach(folder, "cpu", lanes=lanes)
    before = engine.forward(whole_of(encoder))
    table[:] = 0.0
    table.flush()
    changed = engine.forward(whole_of(encoder))
    table[:] = kept
    table.flush()
    assert not np.array_equal(changed, before)


def test_the_modules_beside_the_tables_are_slim(folder: Path, path: Path):
    modules = sum(one.stat().st_size for one in (*folder.glob("*.pt"), *folder.glob("native/*.npy")))
    tables = sum(one.stat().st_size for one in folder.glob("*.npy"))
    assert tables > 40_000 * 8 * 4
    assert modules < path.stat().st_size / 4


def test_items_written_block_by_block_map_to_the_halves_made_at_once(
    path: Path, encoder: FeatureEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    engine, items = Engine.load(path, "cpu"), items_of(encoder)
    wanted = engine.items(items)
    monkeypatch.setattr(engine_module, "ITEM_BLOCK", 7)
    engine.items_to(items, tmp_path)
    found = map_half(tmp_path)
    assert len(found.values) == 1  # one cross of both sides
    assert torch.allclose(found.first, wanted.first, atol=1e-6)
    for name in ("wide", "values", "offsets"):
        pairs = zip(_listed(getattr(found, name)), _listed(getattr(wanted, name)), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)


def test_no_items_are_written_and_mapped_too(path: Path, encoder: FeatureEncoder, tmp_path: Path):
    engine = Engine.load(path, "cpu")
    engine.items_to(items_of(encoder).slice(0, 0), tmp_path)
    assert map_half(tmp_path).rows == 0


def test_an_item_takes_its_first_layer_its_wide_sum_and_its_crosses(path: Path, encoder: FeatureEncoder):
    half = Engine.load(path, "cpu").items(items_of(encoder))
    pairs = half.values[0].numel() * 8 + half.offsets[0].numel() * 8
    assert half.bytes_per_row == 4 * (32 + 1) + pairs / half.rows
    assert too_large(1_000, half.bytes_per_row, limit=1_000 * int(half.bytes_per_row))
    assert not too_large(1_000, half.bytes_per_row, limit=2_000 * int(half.bytes_per_row))


def _listed(part: torch.Tensor | list[torch.Tensor]) -> list[torch.Tensor]:
    return part if isinstance(part, list) else [part]
