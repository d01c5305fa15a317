"""A fitted encoder on disk: `encoder.json`, one vocabulary file a categorical feature, the pickled scalers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.scoring.categorical import CategoricalField, MultiField
from service.scoring.datetimes import DatetimeField
from service.scoring.features import FeatureEncoder
from service.scoring.fields import Field
from service.scoring.files import ENCODER, VOCABULARIES, ArtifactError, read_json, vocabulary_file, write_json
from service.scoring.index import KeyColumn, shared_columns
from service.scoring.numeric import NumericField, Scaler
from service.scoring.scalers import read_scalers, write_scalers
from service.scoring.schema import Feature, FeatureSchema, SchemaError
from service.scoring.vocabulary import Vocabulary, ids_of_order


def save_encoder(encoder: FeatureEncoder, folder: Path) -> None:
    """Write the encoder's files into an existing folder."""
    (folder / VOCABULARIES).mkdir()
    states: list[dict[str, Any]] = []
    for position, one in enumerate(encoder.fields):
        state: dict[str, Any] = {"name": one.feature.name}
        if isinstance(one, NumericField):
            state |= one.state()
        elif isinstance(one, DatetimeField):
            state["missing"] = one.missing
        elif isinstance(one, CategoricalField | MultiField):
            vocabulary = one.vocabulary
            state |= {"boolean": vocabulary.boolean, "rare": vocabulary.rare, "missing": vocabulary.missing}
            if not vocabulary.buckets:
                write_json(folder / vocabulary_file(position), list(vocabulary.texts))
        states.append(state)
    write_json(folder / ENCODER, {"schema": encoder.schema.to_dict(), "fields": states})
    write_scalers(folder, encoder.scalers)


def load_encoder(folder: Path) -> FeatureEncoder:
    """Rebuild the encoder; raises ArtifactError naming the file that does not fit."""
    data = read_json(folder / ENCODER)
    scalers = read_scalers(folder)
    try:
        schema = FeatureSchema.from_dict(data["schema"])
        features = {feature.name: feature for feature in schema.features}
        states = data["fields"]
        if {state["name"] for state in states} != set(features) or len(states) != len(features):
            raise ValueError("its fields are not those of its schema")
        listed = {n: features[state["name"]] for n, state in enumerate(states)}
        texts = {n: _texts(folder, n) for n, feature in listed.items() if has_texts(feature)}
        columns = shared_columns(texts, ids_of_order)
        fields = [
            _field(listed[n], state, scalers, len(texts.get(n, ())), columns.get(n)) for n, state in enumerate(states)
        ]
    except (SchemaError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{ENCODER}: does not fit ({error})") from None
    return FeatureEncoder(schema, tuple(fields), scalers)


def has_texts(feature: Feature) -> bool:
    """Whether a feature has a vocabulary of its own."""
    return feature.kind in ("categorical", "multi") and not feature.buckets


def _field(
    feature: Feature, state: Mapping[str, Any], scalers: Mapping[str, Scaler], count: int, column: KeyColumn | None
) -> Field:
    if feature.kind == "numeric":
        return _numeric(feature, state, scalers)
    if feature.kind == "datetime":
        return DatetimeField(feature, int(state["missing"]))
    known = (bool(state["boolean"]), int(state["rare"]), int(state["missing"]))
    vocabulary = Vocabulary(count, column, feature.buckets, *known)
    return (CategoricalField if feature.kind == "categorical" else MultiField)(feature, vocabulary)


def _numeric(feature: Feature, state: Mapping[str, Any], scalers: Mapping[str, Scaler]) -> NumericField:
    try:
        return NumericField.restore(feature, dict(state), scalers.get(feature.name))
    except ValueError as error:
        raise ArtifactError(f"scalers.joblib: the scaler of '{feature.name}' does not fit ({error})") from None


def _texts(folder: Path, position: int) -> tuple[str, ...]:
    texts = read_json(folder / vocabulary_file(position))
    if not isinstance(texts, list) or not (set(map(type, texts)) <= {str} and all(texts)):
        raise ArtifactError(f"{vocabulary_file(position)}: a list of texts is needed")
    return tuple(texts)
