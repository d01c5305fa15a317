"""The engine scores alike however it is asked, by blocks, padded, fused, and by modules of earlier releases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from service.scoring.device import BF16
from service.scoring.engine import Engine
from service.scoring.features import FeatureEncoder
from service.scoring.files import ArtifactError
from service.scoring.half import Half
from tests.service.scoring.halved import LANES, encoder_of, items_of, save_model, users_of, whole_of
from tests.tiny import ITEMS, USERS, save_scripted

PAIRS = np.repeat(np.arange(len(USERS)), len(ITEMS)), np.tile(np.arange(len(ITEMS)), len(USERS))


@pytest.fixture(scope="module")
def encoder() -> FeatureEncoder:
    return encoder_of()


@pytest.fixture(scope="module")
def path(encoder: FeatureEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("module") / "model.pt"
    save_model(encoder, path)
    return path


@pytest.fixture(params=LANES)
def engine(path: Path, request: pytest.FixtureRequest) -> Engine:
    return Engine.load(path, "cpu", lanes=request.param)


def test_fused_layers_score_as_plain_ones(path: Path, encoder: FeatureEncoder):
    engine = Engine.load(path, "cpu", lanes=0)
    if engine.fused_from is None:
        pytest.skip("this torch has no fused layers")
    whole = whole_of(encoder)
    engine.fused_from = None
    plain = engine.forward(whole)
    engine.fused_from = 1
    assert engine.forward(whole) == pytest.approx(plain, abs=1e-6)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 512, 513, 1100])
def test_any_number_of_pairs_scores_as_each_pair_alone(engine: Engine, encoder: FeatureEncoder, rows: int):
    wanted = engine.forward(whole_of(encoder))
    users, items = (np.resize(one, rows) for one in PAIRS)
    found = engine.rank(engine.user(users_of(encoder)), engine.items(items_of(encoder)), items, users)
    assert found == pytest.approx(np.resize(wanted, rows), abs=1e-6)


@pytest.mark.parametrize("rows", [1, 65, 513, 1100])
def test_any_number_of_rows_scores_as_each_row_alone(engine: Engine, encoder: FeatureEncoder, rows: int):
    whole = whole_of(encoder)
    alone = [engine.forward(whole.slice(n, n + 1))[0] for n in range(5)]
    found = engine.forward(whole.take(np.arange(rows) % 5))
    assert found == pytest.approx(np.resize(alone, rows), abs=1e-6)


def test_users_and_pairs_in_one_call_are_user_then_rank(engine: Engine, encoder: FeatureEncoder):
    items, users = engine.items(items_of(encoder)), users_of(encoder)
    apart = engine.rank(engine.user(users), items, PAIRS[1], PAIRS[0])
    assert np.array_equal(engine.serve(users, items, PAIRS[1], PAIRS[0]), apart)


def test_pairs_do_not_change_the_halves_that_they_are_made_of(engine: Engine, encoder: FeatureEncoder):
    user, items = engine.user(users_of(encoder).slice(0, 1)), engine.items(items_of(encoder))
    rows = np.arange(items.rows)
    first = engine.rank(user, items, rows, np.zeros_like(rows))
    assert np.array_equal(engine.rank(user, items, rows, np.zeros_like(rows)), first)


def test_bf16_scores_nearly_as_float32(engine: Engine, encoder: FeatureEncoder):
    whole, users, items = whole_of(encoder), users_of(encoder), engine.items(items_of(encoder))
    wanted = engine.forward(whole)
    engine.use(BF16)
    for found in (engine.forward(whole), engine.serve(users, items, PAIRS[1], PAIRS[0])):
        assert found.dtype == np.float32
        assert 0 < np.abs(found - wanted).max() < 0.02


class _Earlier(nn.Module):
    """A module of an earlier release: `join` of rows that were gathered before, no `rank`."""

    def forward(self, n: torch.Tensor, ids: torch.Tensor, v: list[torch.Tensor], o: list[torch.Tensor]) -> torch.Tensor:
        return torch.sigmoid(n.sum(1))

    @torch.jit.export
    def user(
        self, n: torch.Tensor, ids: torch.Tensor, v: list[torch.Tensor], o: list[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        none: list[torch.Tensor] = []
        return n, n.sum(1, keepdim=True), none, none

    @torch.jit.export
    def items(
        self, n: torch.Tensor, ids: torch.Tensor, v: list[torch.Tensor], o: list[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        none: list[torch.Tensor] = []
        return n, n.sum(1, keepdim=True), none, none

    @torch.jit.export
    def join(
        self,
        user: tuple[torch.Tensor, torch.Tensor, list[torch.Tensor], list[torch.Tensor]],
        items: tuple[torch.Tensor, torch.Tensor, list[torch.Tensor], list[torch.Tensor]],
        users: torch.Tensor,
    ) -> torch.Tensor:
        return torch.sigmoid(user[1].index_select(0, users) + items[1]).squeeze(1)

    @torch.jit.export
    def explain(
        self, n: torch.Tensor, ids: torch.Tensor, v: list[torch.Tensor], o: list[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return n, n.sum(1)


def test_a_module_of_an_earlier_release_is_asked_to_join_what_was_taken(tmp_path: Path):
    save_scripted(_Earlier().eval(), tmp_path / "model.pt")
    engine = Engine.load(tmp_path / "model.pt", "cpu")
    assert engine.has_halves
    user = Half(torch.zeros(2, 1), torch.tensor([[1.0], [2.0]]), [], [])
    items = Half(torch.zeros(3, 1), torch.tensor([[0.0], [10.0], [-10.0]]), [], [])
    found = engine.rank(user, items, np.array([0, 2]), np.array([1, 0]))
    assert found == pytest.approx([1 / (1 + np.exp(-2)), 1 / (1 + np.exp(9))])


def test_a_damaged_module_is_refused_by_the_name_of_its_file(tmp_path: Path):
    (tmp_path / "model.pt").write_bytes(b"no archive")
    with pytest.raises(ArtifactError, match=r"^model.pt: no TorchScript module"):
        Engine.load(tmp_path / "model.pt", "cpu")
    with pytest.raises(ArtifactError, match=r"^gone.pt: the file is missing"):
        Engine.load(tmp_path / "gone.pt", "cpu")
