"""Rows encoded in a block are what they are value by value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.scoring.encoder_files import load_encoder, save_encoder
from service.scoring.features import FeatureEncoder
from service.scoring.rows import RowEncoder
from service.scoring.schema import SIDES, FeatureSchema
from service.scoring.values import EncodeError
from tests.service.scoring.test_encoder_properties import ARROW, as_table, equal

WRONG = [True, [1], {"a": 1}, "x", 1.5, 10**400, 1 << 5000, -0.0, 1e300, ""]
words = st.sampled_from(["a", "b", "", "7", "07"]) | st.text(max_size=2)
numbers = st.integers(-9, 9) | st.sampled_from([2**63, -(2**63), 10**25])
REQUEST: dict[str, st.SearchStrategy[Any]] = {
    "numeric": st.floats(-1e6, 1e6) | st.integers(-9, 9),
    "categorical": words | numbers,
    "multi": st.lists(words | numbers | st.none(), max_size=3),
    "datetime": st.integers(0, 10**9) | st.sampled_from(["2024-01-31", ""]),
}
TRAINING: dict[str, st.SearchStrategy[Any]] = {
    "numeric": st.none() | st.floats(-100, 100).map(lambda value: round(value, 3)),
    "categorical": st.none() | words,
    "multi": st.lists(words, max_size=3),
    "datetime": st.none() | st.integers(0, 10**9),
}


@st.composite
def schemas(draw: st.DrawFn) -> FeatureSchema:
    features = []
    for n in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(sorted(ARROW)))
        feature: dict[str, Any] = {"name": f"f{n}", "kind": kind, "side": draw(st.sampled_from(SIDES))}
        if kind == "numeric":
            feature["scaler"] = draw(st.sampled_from(["minmax", "standard", "log1p-minmax", "none"]))
            feature |= draw(st.sampled_from([{}, {"bins": [0.0, 5.0]}]))
        elif kind == "datetime":
            feature["parts"] = ["hour", "month"]
        else:
            feature["buckets"] = draw(st.sampled_from([0, 0, 0, 5]))
        features.append(feature)
    return FeatureSchema.parse(features)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[FeatureSchema, list[dict[str, Any]], list[dict[str, Any]]]:
    """A schema, training rows, and request rows with gaps and the odd fault."""
    schema = draw(schemas())
    whole = draw(st.booleans())
    of = {
        one.name: (st.integers(1, 9).map(str) if whole and one.kind == "categorical" else TRAINING[one.kind])
        for one in schema.features
    }
    training = draw(st.lists(st.fixed_dictionaries(of), min_size=1, max_size=5))
    for row in training:
        for one in schema.features:
            if one.scaler == "log1p-minmax" and one.kind == "numeric" and row[one.name] is not None:
                row[one.name] = abs(row[one.name])
    request = {one.name: REQUEST[one.kind] | st.none() for one in schema.features}
    rows = draw(st.lists(st.fixed_dictionaries({}, optional=request), min_size=1, max_size=4))
    if draw(st.integers(0, 3)) == 0:
        draw(st.sampled_from(rows))[draw(st.sampled_from(sorted(request)))] = draw(st.sampled_from(WRONG))
    return schema, training, rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encoders")


def outcome(encode: Any, rows: list[dict[str, Any]]) -> Any:
    try:
        return encode(rows)
    except EncodeError as error:
        return [(fault.loc, fault.msg) for fault in error.faults]


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=150)
@given(world=worlds(), number=st.integers(0, 10**12))
def test_a_block_is_encoded_as_its_values_are_one_by_one(folder: Path, world: Any, number: int) -> None:
    schema, training, rows = world
    fitted = FeatureEncoder.fit(schema, as_table(schema, training))
    home = folder / str(number)
    if not home.exists():
        home.mkdir()
        save_encoder(fitted, home)
        encoders = [fitted, load_encoder(home)]
    else:
        encoders = [fitted]
    for encoder in encoders:
        for sides in (SIDES, ("user", "context"), ("item",)):
            wanted = outcome(lambda given, one=encoder, of=sides: one.encode_rows(given, of), rows)
            found = outcome(RowEncoder(encoder, sides).encode, rows)
            assert found == wanted if isinstance(wanted, list) else equal(found, wanted)
            if not isinstance(wanted, list):
                assert (found.unknown, found.missing) == (wanted.unknown, wanted.missing)
