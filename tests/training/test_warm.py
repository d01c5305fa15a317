"""A warm start: what the version had learned is found under the new ids."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from service.scoring.artifact import open_artifact
from service.scoring.features import FeatureEncoder
from service.scoring.files import ArtifactError
from service.scoring.torchscript import read_module
from tests.training.tiny_data import clicks, config, fit, items, write_data
from training import train
from training.export import eager_scores
from training.model import WideDeep
from training.optimizers import Ftrl
from training.warm import warm_start


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("warm")
    return fit(config(), write_data(home / "data"), home / "artifacts")


def joined() -> pa.Table:
    rows, place = clicks(), {key: n for n, key in enumerate(items().column("item_id").to_pylist())}
    index = pa.array([place[key] for key in rows.column("item_id").to_pylist()])
    for name in ("genres", "price"):
        rows = rows.append_column(name, items().column(name).take(index))
    return rows


def warmed(encoder: FeatureEncoder, version: Path) -> WideDeep:
    made = config()
    model = WideDeep(encoder.layout, made.model.hidden, made.model.dropout).eval()
    warm_start(model, encoder, version)
    return model


def test_with_the_same_columns_and_ids_it_scores_as_the_version(version: Path) -> None:
    old = open_artifact(version)
    rows = old.encoder.encode_table(joined().slice(0, 50))
    # The version's own encoder keeps no texts; ids are matched by those of one that was fitted on the same rows.
    train_rows = joined().slice(0, 480)
    encoder = FeatureEncoder.fit(config().schema, train_rows)
    assert [c.size for c in encoder.layout.ids] == [c.size for c in old.encoder.layout.ids]
    wanted = old.predictor.engine.forward(rows)
    assert eager_scores(warmed(encoder, version), encoder.encode_table(joined().slice(0, 50))) == pytest.approx(
        wanted, abs=1e-5
    )


def test_ids_are_matched_by_name_and_new_ones_begin_as_the_unknown(version: Path) -> None:
    old = open_artifact(version).encoder
    rows = joined()
    renamed = pc.if_else(pc.equal(rows["item_id"], "i3"), "brand new", rows["item_id"])
    new_rows = rows.set_column(rows.column_names.index("item_id"), "item_id", renamed).slice(100, 300)
    encoder = FeatureEncoder.fit(config().schema, new_rows)
    model = warmed(encoder, version)
    table = {dim: n for n, dim in enumerate((4, 8))}[8]
    source = dict(read_module(version / "model.pt", "cpu").named_parameters())[f"model.tables.{table}.weight"]
    # user_id stands before age.bin, hour, weekday have width 4, and item_id.
    new_start, old_start = (
        sum(c.size for c in e.layout.ids if c.name in ("user_id", "age.bin")) for e in (encoder, old)
    )
    for name, at in (("i7", None), ("brand new", 0)):
        new_id = int(encoder.encode_rows([{"item_id": name}], sides=("item",)).ids[0, 0])
        old_id = int(old.encode_rows([{"item_id": name}], sides=("item",)).ids[0, 0]) if at is None else at
        found = model.tables[table].weight[new_start + new_id]  # type: ignore[index]  # a table's weight
        assert torch.equal(found, source[old_start + old_id])


def test_a_fit_from_a_version_trains_on(version: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="training")
    made = config(train={"warm_start": str(version), "epochs": 1})
    folder = train.main(
        made, write_data(tmp_path / "data"), tmp_path / "artifacts", "v2", device="cpu", command="a test"
    )
    assert open_artifact(folder).manifest["training_config"]["train"]["warm_start"] == str(version)
    assert any("warm start from v1" in record.message and "its layers" in record.message for record in caplog.records)


def test_a_version_that_is_not_there_is_named(tmp_path: Path) -> None:
    made = config(train={"warm_start": str(tmp_path / "gone")})
    with pytest.raises(ArtifactError, match="gone"):
        train.main(made, write_data(tmp_path / "data"), tmp_path / "artifacts", "v2", device="cpu", command="a test")


def test_ftrl_begins_where_it_gives_the_weights_at_hand() -> None:
    weight = torch.nn.Parameter(torch.tensor([[0.5], [-0.25], [0.0]]))
    weight.grad = torch.zeros(3, 1)
    Ftrl([weight], lr=0.1, l1=2.0, l2=1.0).step()
    assert weight.flatten().tolist() == pytest.approx([0.5, -0.25, 0.0], abs=1e-6)
