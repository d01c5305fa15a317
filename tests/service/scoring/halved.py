"""A small model with crosses and lists, as the trainer exports it, for tests of the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from service.scoring.encoded import Encoded
from service.scoring.engine import Engine
from service.scoring.features import FeatureEncoder
from service.scoring.native import most_lanes
from tests.tiny import CROSSES, FEATURES, ITEMS, USERS, rows, tiny_encoder
from training.export import save_module
from training.model import WideDeep

# The module itself, and every native kernel that this processor has.
LANES = [lanes for lanes in (0, 8, 16) if lanes <= most_lanes()]


def encoder_of(values: int = 0) -> FeatureEncoder:
    """The encoder of the tiny features, `values` more users in its vocabulary."""
    features = [{**FEATURES[0], "min_count": 1}, *FEATURES[1:]]
    more = [{**USERS[0], **ITEMS[0], "user_id": f"more{n}"} for n in range(values)]
    return tiny_encoder(features=features, crosses=CROSSES, table=pa.Table.from_pylist([*rows(), *more]))


def save_model(encoder: FeatureEncoder, path: Path) -> None:
    torch.manual_seed(3)
    model = WideDeep(encoder.layout, (32, 16), 0.1).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    save_module(model, encoder.layout, path)


def users_of(encoder: FeatureEncoder) -> Encoded:
    return encoder.encode_rows(USERS, sides=("user", "context"))


def items_of(encoder: FeatureEncoder) -> Encoded:
    return encoder.encode_rows(ITEMS, sides=("item",))


def whole_of(encoder: FeatureEncoder) -> Encoded:
    """Every user with every item, 200 rows."""
    return encoder.encode_rows(rows())


def scores_of(encoder: FeatureEncoder, asked: Sequence[Mapping[str, Any]], path: Path) -> list[float]:
    """What the model, saved at `path` on the way, scores these rows."""
    save_model(encoder, path)
    return [float(score) for score in Engine.load(path, "cpu").forward(encoder.encode_rows(asked))]
