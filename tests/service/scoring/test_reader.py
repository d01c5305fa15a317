"""Rows read straight from JSON are what the long way makes of them, or are left to it."""

from __future__ import annotations

import json
import math
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.scoring.encoder_files import load_encoder, save_encoder
from service.scoring.features import FeatureEncoder
from service.scoring.keys import Odd
from service.scoring.reader import ReadRows, is_compiled
from service.scoring.rows import RowEncoder
from service.scoring.schema import FeatureSchema
from service.scoring.values import EncodeError
from tests.service.scoring.test_encoder_properties import as_table, equal
from tests.service.scoring.test_rows import worlds

pytestmark = pytest.mark.skipif(not is_compiled(), reason="the reader was not compiled here")
quiet = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=300)


def published(schema: FeatureSchema, rows: list[dict[str, Any]]) -> FeatureEncoder:
    """As a service has it: all columns of one index."""
    with tempfile.TemporaryDirectory() as folder:
        save_encoder(FeatureEncoder.fit(schema, as_table(schema, rows)), Path(folder))
        return load_encoder(Path(folder))


@cache
def plain() -> FeatureEncoder:
    """A number, a category of texts and one of integers."""
    features = [
        {"name": "number", "kind": "numeric", "side": "user", "scaler": "none"},
        {"name": "text", "kind": "categorical", "side": "user"},
        {"name": "whole", "kind": "categorical", "side": "item"},
    ]
    rows = [{"number": 1.0, "text": "a", "whole": "7"}, {"number": 2.0, "text": "é", "whole": "-8"}]
    rows += [dict.fromkeys(("number", "text", "whole"))]
    return published(FeatureSchema.parse(features), rows)


def read(encoder: FeatureEncoder, text: str | bytes, most: int = 100) -> ReadRows | None:
    reader = RowEncoder(encoder).reader(["member"])
    assert reader is not None
    return reader.read(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text, most)


def agrees(encoder: FeatureEncoder, text: bytes) -> bool:
    """Whether the reader took it; if so, it is valid JSON and encoded as the long way does."""
    rows_encoder = RowEncoder(encoder)
    reader = rows_encoder.reader([])
    found = None if reader is None else reader.read(text, 100)
    if found is None:
        return False
    rows = msgspec.json.decode(text)
    try:
        wanted = encoder.encode_rows(rows)
    except EncodeError:
        with pytest.raises(Odd):
            rows_encoder.finish([found])
        return True
    finished = rows_encoder.finish([found])
    assert equal(finished, wanted)
    assert (finished.unknown, finished.missing) == (wanted.unknown, wanted.missing)
    return True


@quiet
@given(world=worlds(), data=st.data())
def test_what_is_read_is_what_the_long_way_gives(world: Any, data: st.DataObject) -> None:
    schema, training, rows = world
    encoder = published(schema, training)
    indent, ascii_only = data.draw(st.sampled_from([None, 1])), data.draw(st.booleans())
    rows = [dict(data.draw(st.permutations(list(row.items())))) for row in rows]
    text = json.dumps(rows, indent=indent, ensure_ascii=ascii_only, allow_nan=False)
    agrees(encoder, text.encode("utf-8", "surrogatepass"))


@quiet
@given(data=st.data())
def test_damaged_json_is_never_read_as_something_else(data: st.DataObject) -> None:
    text = bytearray(
        b'[{"number": -1.25e2, "text": "a", "whole": 7}, {"whole": "-8", "number": null, "text": "\xc3\xa9"}]'
    )
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text) - 1))
        byte = data.draw(st.sampled_from(b'"{}[]:,0123456789-+.eE\\ntx \x00\x1f\xff\xc3') | st.integers(0, 255))
        change = data.draw(st.sampled_from(["set", "insert", "cut"]))
        if change == "set":
            text[place] = byte
        elif change == "insert":
            text.insert(place, byte)
        else:
            del text[place:]
            break
    agrees(plain(), bytes(text))


@quiet
@given(
    text=st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
)
def test_a_number_is_rounded_as_python_rounds_it(text: str) -> None:
    found = read(plain(), f'[{{"number": {text}}}]')
    wanted = float(text)
    if found is None:
        assert not math.isfinite(wanted) or len(text) > 18
    else:
        assert found.numerics == np.float64(wanted if "." in text or "e" in text.lower() else int(text)).tobytes()


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '[{"number": 1}] x',
        '[{"number": 1},]',
        '[{"number": 1, "number": 2}]',
        '[{"numbers": 1}]',
        '[{"number": "1"}]',
        '[{"number": true}]',
        '[{"number": 01}]',
        '[{"number": 1.}]',
        '[{"number": .5}]',
        '[{"number": +1}]',
        '[{"number": 1e}]',
        '[{"number": 1e999}]',
        '[{"number": NaN}]',
        '[{"text": 1}]',
        '[{"text": "\\u0061"}]',
        '[{"text": "a\nb"}]',
        '[{"text": ["a"]}]',
        '[{"whole": 7.0}]',
        '[{"whole": 9999999999999999999}]',
        '[{"member": {}}]',
        '[{"member": false}]',
        '[{"text": "a}]',
        '[{"text"',
        "[" * 50,
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_the_long_way(text: str) -> None:
    assert read(plain(), text) is None


def test_more_rows_than_are_allowed_are_left_to_the_long_way() -> None:
    assert read(plain(), "[{},{},{}]", most=2) is None
    assert read(plain(), "[{},{},{}]", most=3) is not None


def test_unknown_and_missing_values_are_told_apart() -> None:
    found = read(plain(), '[{"number": 1, "text": "b", "whole": "07"}, {"text": "", "whole": null, "member": "m-1"}]')
    assert found is not None
    assert found.unknown == {"text": 1, "whole": 1}
    assert found.missing == {"number": 1, "text": 1, "whole": 1}


def test_lists_times_and_hashed_categories_have_no_reader() -> None:
    schema = FeatureSchema.parse([{"name": "f", "kind": "multi", "side": "user"}])
    encoder = FeatureEncoder.fit(schema, as_table(schema, [{"f": ["a"]}]))
    assert RowEncoder(encoder).reader([]) is None


def parts_of(encoder: FeatureEncoder, row: dict[str, Any]) -> list[bytes]:
    """A row's user and context features as JSON objects."""
    sides = {one.name: one.side for one in encoder.schema.features}
    return [
        json.dumps({name: value for name, value in row.items() if sides[name] == side}).encode("utf-8", "surrogatepass")
        for side in ("user", "context")
    ]


@quiet
@given(world=worlds())
def test_a_row_in_two_objects_is_read_as_one(world: Any) -> None:
    schema, training, rows = world
    encoder, sides = published(schema, training), ("user", "context")
    rows_encoder = RowEncoder(encoder, sides)
    reader = rows_encoder.reader([])
    for row in rows if reader is not None else []:
        found = reader.read_parts(*parts_of(encoder, row))
        if found is None:
            continue
        own = {one.name: row[one.name] for one in schema.features if one.name in row and one.side in sides}
        try:
            wanted = encoder.encode_rows([own], sides)
        except EncodeError:
            with pytest.raises(Odd):
                rows_encoder.finish([found])
            continue
        finished = rows_encoder.finish([found])
        assert equal(finished, wanted)
        assert (finished.unknown, finished.missing) == (wanted.unknown, wanted.missing)


@pytest.mark.parametrize(
    ("user", "context", "is_read"),
    [
        (b'{"age": 1}', b'{"hour": 2}', True),
        (b'{"age": 1}', b"{}", True),
        (b" {} ", b" {} ", True),
        (b'{"age": 1, "hour": 2}', b"{}", False),
        (b"{}", b'{"age": 1}', False),
        (b'{"age": 1, "age": 1}', b"{}", False),
        (b'{"age": 1}x', b"{}", False),
        (b'{"age": 1},', b"{}", False),
        (b'{"age": 1', b"{}", False),
        (b"null", b"{}", False),
        (b'{"age": 1}', b"null", False),
        (b'{"age": 1}', b"", False),
        (b'{"price": 1}', b"{}", False),
    ],
)
def test_each_name_of_a_row_in_two_objects_has_its_own(user: bytes, context: bytes, is_read: bool) -> None:
    features = [
        {"name": name, "kind": "numeric", "side": side, "scaler": "none"}
        for name, side in (("age", "user"), ("hour", "context"), ("price", "item"))
    ]
    features.append({"name": "city", "kind": "categorical", "side": "user"})
    encoder = published(FeatureSchema.parse(features), [{"age": 1.0, "hour": 1.0, "price": 1.0, "city": "a"}])
    reader = RowEncoder(encoder, ("user", "context")).reader([])
    assert reader is not None
    assert (reader.read_parts(user, context) is not None) == is_read
