"""`rank` of a user and items is `forward`, for every kind of feature, bag and cross; `explain` adds up to the logit."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.scoring.encoded import Encoded
from service.scoring.engine import Engine
from service.scoring.features import FeatureEncoder
from service.scoring.schema import FeatureSchema
from tests.service.scoring.halved import LANES
from training.calibration import Platt
from training.export import eager_scores, save_module
from training.model import WideDeep

CATEGORIES = st.sampled_from(["a", "b", "c", "d", None])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "numeric": st.none() | st.floats(-100, 100),
    "categorical": CATEGORIES,
    "multi": st.lists(CATEGORIES, max_size=4),
    "datetime": st.integers(0, 2 * 10**9),
}


NORMS = st.sampled_from(["none", "batch"])


class Layers(NamedTuple):
    hidden: tuple[int, ...]
    norm: str
    seed: int
    correction: float = 0.0
    platt: tuple[float, float] | None = None


@st.composite
def worlds(draw: st.DrawFn) -> tuple[FeatureSchema, list[dict[str, Any]], Layers]:
    features = []
    for n in range(draw(st.integers(2, 7))):
        kind = draw(st.sampled_from(sorted(VALUES)))
        feature: dict[str, Any] = {
            "name": f"f{n}",
            "kind": kind,
            "side": draw(st.sampled_from(["user", "context", "item"])),
        }
        feature |= {"dim": draw(st.sampled_from([2, 4])), "wide": draw(st.booleans())}
        if kind == "numeric" and draw(st.booleans()):
            feature["bins"] = [0, 10]
        if kind == "datetime":
            feature["parts"] = ["hour", "month"]
        features.append(feature)
    columns = [column for feature in FeatureSchema.parse(features).features for column in feature.id_columns()]
    crosses = []
    if len(columns) > 1:
        pick = st.lists(st.sampled_from(columns), min_size=2, max_size=3, unique=True)
        of = draw(st.lists(pick, max_size=3, unique_by=tuple))
        crosses = [{"of": names, "buckets": draw(st.sampled_from([3, 50, 10_000]))} for names in of]
    row = st.fixed_dictionaries({feature["name"]: VALUES[feature["kind"]] for feature in features})
    hidden = draw(st.sampled_from([(5,), (6, 3), (40, 33, 2)]))
    rows = draw(st.lists(row, min_size=2, max_size=8))
    return (
        FeatureSchema.parse(features, crosses),
        rows,
        Layers(
            hidden,
            draw(NORMS),
            draw(st.integers(0, 99)),
            draw(st.sampled_from([0.0, -1.5])),
            draw(st.sampled_from([None, (1.5, -0.5)])),
        ),
    )


def table_of(schema: FeatureSchema, rows: list[dict[str, Any]]) -> pa.Table:
    types = {
        "numeric": pa.float64(),
        "categorical": pa.string(),
        "multi": pa.list_(pa.string()),
        "datetime": pa.int64(),
    }
    return pa.table({one.name: pa.array([row[one.name] for row in rows], types[one.kind]) for one in schema.features})


def model_of(encoder: FeatureEncoder, layers: Layers) -> WideDeep:
    torch.manual_seed(layers.seed)
    model = WideDeep(encoder.layout, layers.hidden, 0.1, layers.norm).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    for name, statistic in model.mlp.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            statistic.uniform_(0.5, 2)
    model.correction = layers.correction
    if layers.platt is not None:
        model.calibration = Platt(*layers.platt)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("modules")


@given(world=worlds())
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_halves_ranked_are_forward(folder: Any, world: tuple[FeatureSchema, list[dict[str, Any]], Layers]) -> None:
    schema, rows, layers = world
    encoder = FeatureEncoder.fit(schema, table_of(schema, rows))
    model = model_of(encoder, layers)
    save_module(model, encoder.layout, folder / "model.pt")
    for lanes in LANES:
        _check(Engine.load(folder / "model.pt", "cpu", lanes=lanes), model, encoder, rows)


def _check(engine: Engine, model: WideDeep, encoder: FeatureEncoder, rows: list[dict[str, Any]]) -> None:
    # Every user with every item: rows are pairs of a left and a right row.
    pairs = [(left, right) for left in range(len(rows)) for right in range(len(rows))]
    names = {one.name: one.side for one in encoder.schema.features}
    joined = [
        {name: rows[right if side == "item" else left][name] for name, side in names.items()} for left, right in pairs
    ]
    wanted = engine.forward(encoder.encode_rows(joined))
    assert eager_scores(model, encoder.encode_rows(joined)) == pytest.approx(wanted, abs=1e-6)
    users = engine.user(encoder.encode_rows(rows, sides=("user", "context")))
    items = engine.items(encoder.encode_rows(rows, sides=("item",)))
    index = np.array([left for left, _ in pairs])
    places = np.array([right for _, right in pairs])
    for fused_from in {None, engine.fused_from and 1}:
        engine.fused_from = fused_from
        assert engine.rank(users, items, places, index) == pytest.approx(wanted, abs=1e-6)
        for left in range(len(rows)):  # one user at a time goes another way
            alone = encoder.encode_rows(rows[left : left + 1], sides=("user", "context"))
            found = engine.serve(alone, items, places[: len(rows)], np.zeros(len(rows), np.int64))
            assert found == pytest.approx(wanted[left * len(rows) : (left + 1) * len(rows)], abs=1e-6)
    assert engine.join(users, engine.take(items, places), index) == pytest.approx(wanted, abs=1e-6)
    if isinstance(model.calibration, torch.nn.Identity):  # else the logit is that of the uncorrected score
        terms, deep = engine.explain(encoder.encode_rows(joined))
        assert 1 / (1 + np.exp(-(terms.sum(1) + deep))) == pytest.approx(wanted, abs=1e-6)


def test_the_halves_add_no_second_copy_of_the_tables(folder: Any) -> None:
    names = [str(n) for n in range(20_000)]
    schema = FeatureSchema.parse([{"name": "id", "kind": "categorical", "side": "item", "dim": 16, "wide": True}])
    encoder = FeatureEncoder.fit(schema, pa.table({"id": names}))
    model = model_of(encoder, Layers((4,), "none", 0))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.*", category=DeprecationWarning)
        torch.jit.script(model).save(str(folder / "plain.pt"))
    save_module(model, encoder.layout, folder / "halved.pt")
    assert (folder / "halved.pt").stat().st_size < 1.1 * (folder / "plain.pt").stat().st_size


def test_encoded_sides_lie_side_by_side_in_the_whole(folder: Any) -> None:
    schema = FeatureSchema.parse(
        [{"name": "i", "kind": "multi", "side": "item"}, {"name": "u", "kind": "categorical", "side": "user"}]
    )
    encoder = FeatureEncoder.fit(schema, pa.table({"i": [["a", "b"], ["c"]], "u": ["x", "y"]}))
    row = {"i": ["c", "a"], "u": "y"}
    joined = Encoded.beside(
        encoder.encode_rows([row], sides=("user", "context")), encoder.encode_rows([row], sides=("item",))
    )
    whole = encoder.encode_rows([row])
    assert joined.ids.tolist() == whole.ids.tolist()
    assert joined.bags[0].values.tolist() == whole.bags[0].values.tolist()
