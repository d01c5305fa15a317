"""The training config: a TOML file checked once and frozen; what is wrong is said with the nearest known name."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from service.scoring.schema import FeatureSchema, SchemaError, nearest

FORMATS = ("parquet", "csv", "tsv")
SPLITS = ("time", "random", "files")
WIDE_OPTIMIZERS = ("ftrl", "adagrad", "adam", "sgd")
DEEP_OPTIMIZERS = ("adagrad", "adam")
NORMS = ("none", "batch")
SCHEDULES = ("constant", "plateau")
CALIBRATIONS = ("none", "platt", "isotonic")
_SECTIONS = ("data", "split", "features", "crosses", "model", "train", "report")
SECTIONS = ("data", "split", "model", "train", "report")  # those of fixed keys
MAX_INTEGER = (1 << 31) - 1  # batch_size, epochs, patience
MAX_SEED = (1 << 63) - 1
MAX_WIDTH = 65_536  # a hidden layer's, an embedding's
_Section = TypeVar("_Section", "DataConfig", "SplitConfig", "ModelConfig", "TrainConfig", "ReportConfig")


class ConfigError(ValueError):
    """A config that cannot be used: one plain sentence that says what, where and the nearest known name."""


@dataclass(frozen=True, slots=True)
class DataConfig:
    """Where the rows are and which columns have a role."""

    format: str = "parquet"
    label: str = "clicked"
    unit: str | None = None
    item: str | None = None
    items: str | None = None
    timestamp: str | None = None
    columns: tuple[str, ...] = ()  # names of all columns, of csv and tsv files without a header

    def __post_init__(self) -> None:
        _one_of(self.format, FORMATS, "[data] format")
        if self.columns and self.format == "parquet":
            raise ConfigError("[data] columns names those of csv and tsv files without a header; parquet has its own")
        for name in ("label", "unit", "item", "items", "timestamp"):
            if getattr(self, name) == "":
                raise ConfigError(f"[data] {name} must not be empty")
        if self.items and not self.item:
            raise ConfigError("[data] items needs 'item', the key by which the item table is joined")
        if self.items and (Path(self.items).is_absolute() or ".." in Path(self.items).parts):
            raise ConfigError(f"[data] items = '{self.items}' must lie under PATH")
        roles = [name for name in (self.label, self.unit, self.item) if name]
        if len(set(roles)) < len(roles):
            raise ConfigError("[data] label, unit and item must be different columns")


@dataclass(frozen=True, slots=True)
class SplitConfig:
    """How rows become training, validation and test parts; fractions of all rows."""

    kind: str = "time"
    valid: float = 0.1
    test: float = 0.1
    gap: float = 0.0  # seconds between the parts, whose rows belong to none

    def __post_init__(self) -> None:
        if not 0 <= self.gap < math.inf:
            raise ConfigError("[split] gap must be a finite number of seconds, at least 0")
        if self.gap and self.kind != "time":
            raise ConfigError('[split] gap has a meaning for kind = "time" alone')
        _one_of(self.kind, SPLITS, "[split] kind")
        if not 0 < self.valid < 1 or not 0 <= self.test < 1 or self.valid + self.test >= 1:
            raise ConfigError("[split] valid must lie above 0, test at or above 0, and both together below 1")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The deep part: widths of its hidden layers, what norms them, and the dropout between them."""

    hidden: tuple[int, ...] = (256, 128, 64)
    dropout: float = 0.5
    norm: str = "none"

    def __post_init__(self) -> None:
        if not self.hidden or any(width < 1 for width in self.hidden):
            raise ConfigError("[model] hidden must list at least one width, each at least 1")
        if max(self.hidden) > MAX_WIDTH:
            raise ConfigError(f"[model] hidden: a width must be at most {MAX_WIDTH}")
        if not 0 <= self.dropout < 1:
            raise ConfigError("[model] dropout must be at least 0 and below 1")
        _one_of(self.norm, NORMS, "[model] norm")


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """The loop. A learning rate of 0 is the optimizer's own (optimizers.py); l1 and l2 are FTRL's, per example.

    `embedding_l2` λ adds λ/2·Σw² of the embeddings that are stepped to a batch's mean log loss.
    """

    batch_size: int = 4096
    epochs: int = 10
    patience: int = 2
    wide_optimizer: str = "ftrl"
    deep_optimizer: str = "adagrad"
    wide_lr: float = 0.0
    deep_lr: float = 0.0
    l1: float = 1.0
    l2: float = 1.0
    embedding_l2: float = 0.0
    accumulate: int = 1  # parts in which a batch is taken
    schedule: str = "constant"
    negatives: float = 1.0
    calibration: str = "none"
    warm_start: str = ""
    seed: int = 1

    def __post_init__(self) -> None:
        _one_of(self.calibration, CALIBRATIONS, "[train] calibration")
        _one_of(self.wide_optimizer, WIDE_OPTIMIZERS, "[train] wide_optimizer")
        _one_of(self.deep_optimizer, DEEP_OPTIMIZERS, "[train] deep_optimizer")
        _one_of(self.schedule, SCHEDULES, "[train] schedule")
        if not 0 < self.negatives <= 1:
            raise ConfigError("[train] negatives, the share that is trained on, must lie above 0 and at most at 1")
        for name, least in (
            ("batch_size", 1),
            ("epochs", 1),
            ("accumulate", 1),
            ("patience", 0),
            ("seed", 0),
        ):
            if getattr(self, name) < least:
                raise ConfigError(f"[train] {name} must be at least {least}")
            if getattr(self, name) > (most := MAX_SEED if name == "seed" else MAX_INTEGER):
                raise ConfigError(f"[train] {name} must be at most {most}")
        for name in ("wide_lr", "deep_lr", "l1", "l2", "embedding_l2"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"[train] {name} must be a finite number of at least 0")


@dataclass(frozen=True, slots=True)
class ReportConfig:
    """What the report shows: metrics for each value of the features in `slices`."""

    slices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Config:
    """A whole training config; `to_dict` is what the manifest stores and `from_dict` reads back."""

    schema: FeatureSchema
    data: DataConfig = field(default_factory=DataConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    report: ReportConfig = field(default_factory=ReportConfig)

    def __post_init__(self) -> None:
        if self.split.kind == "time" and not self.data.timestamp:
            raise ConfigError('[split] kind = "time" needs [data] timestamp, the column that orders the rows')
        if any(feature.name == self.data.label for feature in self.schema.features):
            raise ConfigError(f"feature '{self.data.label}' is the label; a model must not read its own answer")
        _check_widths(self.schema)
        names = [feature.name for feature in self.schema.features]
        for name in self.report.slices:
            if name not in names:
                raise ConfigError(f"[report] slices: '{name}' is no feature{nearest(name, names)}")

    @classmethod
    def from_dict(cls, tables: dict[str, Any]) -> Config:
        """Check a parsed TOML file; raises ConfigError."""
        for key in tables:
            if key not in (*_SECTIONS, "tune"):  # what tune searches is tune's to check
                raise ConfigError(f"unknown section '{key}'{nearest(key, _SECTIONS)}")
        data = _section(DataConfig, tables, "data")
        features, crosses = (_list(tables, key) for key in ("features", "crosses"))
        try:
            schema = FeatureSchema.parse(features, crosses, unit=data.unit, item=data.item)
        except SchemaError as error:
            raise ConfigError(str(error)) from None
        return cls(
            schema,
            data,
            _section(SplitConfig, tables, "split"),
            _section(ModelConfig, tables, "model"),
            _section(TrainConfig, tables, "train"),
            _section(ReportConfig, tables, "report"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, defaults written out."""
        parts = self.schema.to_dict()
        sections = {name: dataclasses.asdict(getattr(self, name)) for name in SECTIONS}
        sections["data"] = {key: value for key, value in sections["data"].items() if value not in (None, ())}
        if self.data.columns:
            sections["data"]["columns"] = list(self.data.columns)
        sections["model"]["hidden"] = list(self.model.hidden)
        sections["report"]["slices"] = list(self.report.slices)
        return {**sections, "features": parts["features"], "crosses": parts["crosses"]}

    def with_train(self, **changes: int | None) -> Config:
        """The same config with what the command line said instead (None: nothing said)."""
        said: dict[str, Any] = {key: value for key, value in changes.items() if value is not None}
        return dataclasses.replace(self, train=dataclasses.replace(self.train, **said))


def read_config(path: Path) -> Config:
    """Parse the TOML file at `path`; raises ConfigError that begins with the file's name."""
    try:
        # utf-8-sig: editors on Windows put a byte order mark that TOML does not allow
        return Config.from_dict(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
    except ValueError as error:  # a TOML fault or a ConfigError
        raise ConfigError(f"{path}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: lists or tables are nested too deep") from None


def _section(kind: type[_Section], tables: dict[str, Any], name: str) -> _Section:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"[{name}] must be a table")
    types = {item.name: str(item.type) for item in dataclasses.fields(kind)}
    values = {}
    for key, value in table.items():
        if key not in types:
            raise ConfigError(f"[{name}] unknown key '{key}'{nearest(key, types)}")
        values[key] = _typed(value, types[key], f"[{name}] {key}")
    return kind(**values)


def _typed(value: object, wanted: str, where: str) -> Any:
    """`value` as the field's annotation says; bool is no integer, an integer is a float."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if wanted.startswith("str") and isinstance(value, str):
        return value
    if wanted == "int" and number and isinstance(value, int):
        return value
    if wanted == "float" and number:
        return _float(value, where)  # type: ignore[arg-type]  # a number, checked above
    if wanted.startswith("tuple") and isinstance(value, list):
        return tuple(_typed(element, wanted[6:].partition(",")[0], where) for element in value)
    named = {"int": "an integer", "float": "a number", "tuple[int, ...]": "a list of integers"}
    named |= {"tuple[str, ...]": "a list of texts"}
    raise ConfigError(f"{where} must be {named.get(wanted, 'a text')}")


def _float(value: float, where: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ConfigError(f"{where} is too large for a number") from None


def _check_widths(schema: FeatureSchema) -> None:
    """Embeddings that no machine can hold are a slip of the keyboard."""
    for feature in schema.features:
        if feature.dim > MAX_WIDTH:
            raise ConfigError(f"feature '{feature.name}': dim must be at most {MAX_WIDTH}")


def _list(tables: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = tables.get(key, [])
    if not isinstance(found, list):
        raise ConfigError(f"[{key}] must be written [[{key}]], one table for each")
    return found


def _one_of(value: str, known: tuple[str, ...], where: str) -> None:
    if value not in known:
        raise ConfigError(f"{where} = '{value}' must be one of {', '.join(known)}{nearest(value, known)}")
