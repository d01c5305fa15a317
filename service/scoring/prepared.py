"""A version made ready once for all processes of a host: verified, examined, and laid out to be mapped.

    prepare(artifact, folder)   reads everything, checks everything; slow, needs memory of its own
    attach(folder)              maps what it wrote; fast, adds next to nothing to a process

The folder is for processes that were forked from one: it holds keys of their common hash (see `index.py`). Whoever
attaches trusts it, so it must be private.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from service.scoring.arrays import map_column, map_encoded, map_index, save_column, save_encoded, save_index
from service.scoring.artifact import Artifact, exam_request, examine, examine_precision, open_artifact
from service.scoring.catalog import Catalog
from service.scoring.categorical import CategoricalField, MultiField
from service.scoring.datetimes import DatetimeField
from service.scoring.device import FLOAT32
from service.scoring.encoder_files import has_texts
from service.scoring.engine import Engine
from service.scoring.features import FeatureEncoder
from service.scoring.fields import Field
from service.scoring.files import EXAM, MODULE, read_json, write_json
from service.scoring.half_files import map_half
from service.scoring.index import KeyColumn
from service.scoring.numeric import NumericField
from service.scoring.predictor import Predictor
from service.scoring.schema import Feature, FeatureSchema
from service.scoring.vocabulary import Vocabulary

_STATE, _ENCODER, _CATALOG, _ENGINE, _HALF = "state.json", "encoder", "catalog", "engine", "half"


def prepare(artifact: Path, folder: Path, revision: int = 0) -> None:
    """Fill the empty `folder` from a version with a revision of its catalog; raises ArtifactError."""
    for name in (_ENCODER, _CATALOG, _ENGINE, _HALF):
        (folder / name).mkdir()
    opened = open_artifact(artifact, revision=revision, halves=folder / _HALF)
    state: dict[str, Any] = {"version": opened.version, "encoder": _save_encoder(opened.encoder, folder / _ENCODER)}
    state["corrected"] = opened.predictor.corrected
    state["exam"] = _exam(opened, read_json(artifact / EXAM)["requests"])
    Engine.save_mapped(artifact / MODULE, folder / _ENGINE)
    if opened.catalog is not None:
        state["catalog"] = _save_catalog(opened.catalog, folder / _CATALOG)
    if opened.catalog is None or opened.catalog.half is None:
        shutil.rmtree(folder / _HALF)
    write_json(folder / _STATE, state)
    # What was laid out is no longer what was examined: its tables were taken out and put back.
    examine(attach(folder), state["exam"])


def attach(
    folder: Path, *, device: str = "cpu", precision: str = FLOAT32, precision_tolerance: float = 1e-3
) -> Predictor:
    """The version that was prepared in `folder`; ArtifactError where device or precision are off its exam."""
    state = read_json(folder / _STATE)
    encoder = _map_encoder(state["encoder"], folder / _ENCODER)
    engine = Engine.attach(folder / _ENGINE, device, encoder.layout)
    catalog = attach_catalog(folder, device=device)
    predictor = Predictor(state["version"], encoder, engine, catalog, corrected=state["corrected"])
    if device != "cpu" or precision != FLOAT32:
        examine_precision(predictor, state["exam"], precision, precision_tolerance)
    return predictor


def attach_catalog(folder: Path, *, device: str = "cpu") -> Catalog | None:
    """Its catalog alone."""
    state = read_json(folder / _STATE).get("catalog")
    if state is None:
        return None
    home, half = folder / _CATALOG, folder / _HALF
    catalog = Catalog(map_column(home, state["items"]), map_encoded(home, state["encoded"]), None, state["revision"])
    return replace(catalog, half=map_half(half, device)) if half.exists() else catalog


def _exam(opened: Artifact, requests: list[Any]) -> dict[str, Any]:
    """The version's exam with the scores that the CPU gives against this revision of the catalog."""
    scores = [opened.predictor.scores_of(exam_request(one)).tolist() for one in requests]
    return {"requests": requests, "scores": scores}


def _save_catalog(catalog: Catalog, home: Path) -> dict[str, Any]:
    items, encoded = save_column(catalog.items, home), save_encoded(catalog.encoded, home)
    return {"items": items, "encoded": encoded, "revision": catalog.revision}


def _save_encoder(encoder: FeatureEncoder, home: Path) -> dict[str, Any]:
    fields = [_field_state(one) for one in encoder.fields]
    columns = [one.vocabulary.column for one in encoder.fields if isinstance(one, CategoricalField | MultiField)]
    index = next((column.index for column in columns if column is not None), None)
    return {
        "schema": encoder.schema.to_dict(),
        "fields": fields,
        "index": None if index is None else save_index(index, home),
    }


def _field_state(one: Field) -> dict[str, Any]:
    state: dict[str, Any] = {"name": one.feature.name}
    if isinstance(one, NumericField):
        return state | one.state() | {"factor": one.factor, "shift": one.shift}
    if isinstance(one, DatetimeField):
        return state | {"missing": one.missing}
    assert isinstance(one, CategoricalField | MultiField)  # there is no other kind
    known = one.vocabulary
    state |= {"count": known.count, "boolean": known.boolean, "rare": known.rare, "missing": known.missing}
    if known.column is not None:
        state |= {"salt": known.column.salt, "integers": known.column.integers}
    return state


def _map_encoder(state: Mapping[str, Any], home: Path) -> FeatureEncoder:
    schema = FeatureSchema.from_dict(state["schema"])
    features = {feature.name: feature for feature in schema.features}
    index = None if state["index"] is None else map_index(home, state["index"])
    fields = []
    for known in state["fields"]:
        feature = features[known["name"]]
        column = None
        if index is not None and has_texts(feature):
            column = KeyColumn(index, known["salt"], known["integers"])
        fields.append(_field(feature, known, column))
    return FeatureEncoder(schema, tuple(fields))


def _field(feature: Feature, state: Mapping[str, Any], column: KeyColumn | None) -> Field:
    if feature.kind == "numeric":
        numbers = {name: float(state[name]) for name in ("low", "high", "mean", "factor", "shift")}
        return NumericField(feature, missing=int(state["missing"]), **numbers)
    if feature.kind == "datetime":
        return DatetimeField(feature, int(state["missing"]))
    counts = (bool(state["boolean"]), int(state["rare"]), int(state["missing"]))
    vocabulary = Vocabulary(int(state["count"]), column, feature.buckets, *counts)
    return (CategoricalField if feature.kind == "categorical" else MultiField)(feature, vocabulary)
