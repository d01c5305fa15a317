"""Tiny real versions for tests: published by the serving code, without any training."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

from service.revise import revise
from service.scoring.encoded import Encoded
from service.scoring.features import FeatureEncoder
from service.scoring.publish import Draft, publish
from service.scoring.schema import FeatureSchema

FEATURES: list[dict[str, Any]] = [
    {"name": "user_id", "kind": "categorical", "side": "user", "min_count": 2},
    {"name": "age", "kind": "numeric", "side": "user", "bins": [18, 30, 50]},
    {"name": "shown_at", "kind": "datetime", "side": "context", "parts": ["hour", "weekday"]},
    {"name": "price", "kind": "numeric", "side": "item"},
    {"name": "genres", "kind": "multi", "side": "item", "wide": True},
]
CROSSES: list[dict[str, Any]] = [{"of": ["age.bin", "genres"], "buckets": 50}]

USERS = [{"user_id": f"u{n}", "age": 10 + 5 * n, "shown_at": 1_700_000_000 + 4000 * n} for n in range(10)]
ITEMS = [{"item_id": f"i{n}", "price": float(n), "genres": ["a", "b", "c", "d"][n % 4 :]} for n in range(20)]


class TinyModule(nn.Module):
    """One number an id, a bag's mean and a weighted sum of the numerics, then the sigmoid."""

    def __init__(self, encoder: FeatureEncoder, seed: int, constant: float | None) -> None:
        super().__init__()
        layout = encoder.layout
        sizes = [column.size for column in (*layout.ids, *layout.bags)]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int).tolist()
        self.register_buffer("id_starts", torch.tensor(starts[: len(layout.ids)], dtype=torch.int64))
        self.register_buffer("bag_starts", torch.tensor(starts[len(layout.ids) : -1], dtype=torch.int64))
        generator = torch.Generator().manual_seed(seed)
        scale = 0.0 if constant is not None else 1.0
        self.table = nn.Parameter(torch.randn(starts[-1], 1, generator=generator) * scale)
        self.weights = nn.Parameter(torch.randn(len(layout.numerics), generator=generator) * scale)
        self.bias = float(np.log(constant / (1 - constant))) if constant is not None else -0.5

    def forward(
        self,
        numerics: torch.Tensor,
        ids: torch.Tensor,
        bag_values: list[torch.Tensor],
        bag_offsets: list[torch.Tensor],
    ) -> torch.Tensor:
        logits = numerics @ self.weights + self.bias
        logits = logits + self.table[ids + self.id_starts].sum(dim=(1, 2))
        for n in range(len(bag_values)):
            values, offsets = bag_values[n] + self.bag_starts[n], bag_offsets[n]
            bag = nn.functional.embedding_bag(values, self.table, offsets, mode="mean", include_last_offset=True)
            logits = logits + bag.squeeze(1)
        return torch.sigmoid(logits)


def rows(
    users: Sequence[Mapping[str, Any]] = USERS, items: Sequence[Mapping[str, Any]] = ITEMS
) -> list[dict[str, Any]]:
    """Every user with every item, as rows of a training table."""
    return [{**user, **item} for user in users for item in items]


def tiny_encoder(
    *,
    features: Sequence[Mapping[str, Any]] = FEATURES,
    crosses: Sequence[Mapping[str, Any]] = CROSSES,
    item: str | None = "item_id",
    table: pa.Table | None = None,
) -> FeatureEncoder:
    schema = FeatureSchema.parse(features, crosses, unit="user_id", item=item)
    return FeatureEncoder.fit(schema, pa.Table.from_pylist(rows()) if table is None else table)


def eager_scores(module: TinyModule, encoded: Encoded) -> list[float]:
    values = [torch.from_numpy(bag.values) for bag in encoded.bags]
    offsets = [torch.from_numpy(bag.offsets) for bag in encoded.bags]
    with torch.inference_mode():
        scores = module(torch.from_numpy(encoded.numerics), torch.from_numpy(encoded.ids), values, offsets)
    return [float(score) for score in scores]


def save_scripted(module: nn.Module, path: Path) -> None:
    with warnings.catch_warnings():
        # TorchScript is deprecated in torch; this stands for the trainer's export.
        warnings.filterwarnings("ignore", message=".*torch.jit.*", category=DeprecationWarning)
        torch.jit.script(module).save(str(path))


def publish_tiny(
    root: Path,
    version: str = "v1",
    *,
    seed: int = 1,
    constant: float | None = None,
    encoder: FeatureEncoder | None = None,
    items: Sequence[Mapping[str, Any]] = ITEMS,
    manifest: Mapping[str, Any] | None = None,
) -> Path:
    """Publish a version under `root`; with `constant` every score is that probability."""
    encoder = encoder or tiny_encoder()
    module = TinyModule(encoder, seed, constant).eval()
    sample = rows()[::7]
    requests: list[dict[str, Any]] = [{"instances": sample}, {"instances": [{}]}]
    scores = [eager_scores(module, encoder.encode_rows(request["instances"])) for request in requests]
    catalog = None
    if encoder.schema.item is not None:
        catalog = pa.Table.from_pylist([dict(item) for item in items])
        user = {"user_id": "u1", "age": 33}
        requests.append({"user": user, "context": {}, "candidates": [item["item_id"] for item in items]})
        scores.append(eager_scores(module, encoder.encode_rows([{**user, **item} for item in items])))
    metrics = {"valid": {"auc": 0.5}, "test": {"auc": 0.5}}
    draft = Draft(
        version=version,
        save_module=lambda path: save_scripted(module, path),
        encoder=encoder,
        catalog=catalog,
        requests=requests,
        scores=scores,
        manifest={"metrics": metrics, **(manifest or {})},
    )
    return publish(root, draft)


def add_revision(version: Path, items: Sequence[Mapping[str, Any]], *, replace: bool = False) -> None:
    """Add a catalog revision with the command users run."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "items.parquet"
        pq.write_table(pa.Table.from_pylist([dict(item) for item in items]), source)
        assert revise(version, source, replace=replace) == 0
