"""The weights of a published version by the values they belong to; the notebook draws them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from service.scoring.artifact import Artifact, open_artifact
from service.scoring.encoder_files import has_texts
from service.scoring.files import MODULE, read_json, vocabulary_file
from service.scoring.layout import FIRST_VALUE
from service.scoring.torchscript import load_module

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A value near another one: the cosine of their vectors."""

    value: str
    cosine: float


class Explorer:
    """A version opened for looking at; raises ArtifactError where it cannot be opened."""

    def __init__(self, folder: Path) -> None:
        self.artifact: Artifact = open_artifact(folder)
        module = load_module(folder / MODULE, "cpu")
        tensors = [*module.named_parameters(), *module.named_buffers()]
        self._arrays: dict[str, Array] = {name: tensor.detach().numpy() for name, tensor in tensors}
        self._texts: dict[str, list[str]] = {}
        for position, one in enumerate(self.artifact.encoder.fields):
            if has_texts(one.feature):
                self._texts[one.feature.name] = read_json(folder / vocabulary_file(position))

    @property
    def manifest(self) -> Any:
        return self.artifact.manifest

    def wide_weights(self) -> dict[str, Array]:
        """Weights (size,) of each single-valued wide column and of each bag's, by column."""
        layout, table = self.artifact.encoder.layout, self._arrays["model.wide.weight"][:, 0]
        columns = [column for column in (*layout.ids, *layout.bags) if column.wide]
        starts = np.cumsum([0, *(column.size for column in columns)])
        ends = zip(columns, starts[:-1], starts[1:], strict=True)
        return {column.name: table[first:last] for column, first, last in ends}

    def embedding(self, name: str) -> Array:
        """Vectors (size, D) of a column's ids; KeyError where there is no such column."""
        layout = self.artifact.encoder.layout
        columns = {column.name: column for column in (*layout.ids, *layout.bags)}
        dim = columns[name].dim
        # A table holds the columns of one width: ids first, then bags, in the layout's order.
        inside = [column for column in (*layout.ids, *layout.bags) if column.dim == dim]
        place = [column.name for column in inside].index(name)
        first = sum(column.size for column in inside[:place])
        tables = [v for k, v in self._arrays.items() if k.startswith("model.tables.") and k.endswith(".weight")]
        table = next(table for table in tables if table.shape == (sum(c.size for c in inside), dim))
        return table[first : first + columns[name].size]

    def values(self, name: str) -> list[str]:
        """What the ids of a column stand for, from id 0."""
        texts = self._texts.get(name, [])
        size = next(c.size for c in (*self._layout.ids, *self._layout.bags) if c.name == name)
        named = ["(unknown)", "(missing)", *texts]
        return [*named, *(f"#{n}" for n in range(len(named), size))][:size]

    def columns_with_texts(self) -> list[str]:
        """Columns whose values have names and more than one of them."""
        return [name for name, texts in self._texts.items() if len(texts) > 1]

    def neighbours(self, name: str, value: str, count: int = 5) -> list[Neighbour]:
        """The values whose vectors point most nearly where `value`'s does, the nearest first."""
        vectors, values = self.embedding(name), self.values(name)
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        place = values.index(value)
        cosines = unit @ unit[place]
        order = [n for n in np.argsort(-cosines) if n != place and n >= FIRST_VALUE]
        return [Neighbour(values[n], float(cosines[n])) for n in order[:count]]

    @property
    def _layout(self) -> Any:
        return self.artifact.encoder.layout
