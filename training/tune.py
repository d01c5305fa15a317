"""`tune`: a search over ranges that the config's [tune] section gives, judged on the validation part alone.

    [tune]
    trials = 40
    metric = "auc"                                     # or logloss, ne, gauc
    [tune.ranges]
    "train.deep_lr" = { low = 1e-4, high = 1e-1, log = true }
    "model.dropout" = { low = 0.0, high = 0.6 }
    "model.hidden" = { choices = [[64, 32], [256, 128, 64]] }

A trial is a fit as `fit` does it, into a folder that is removed again. No trial looks at the test part.
"""

from __future__ import annotations

import json
import logging
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from service.scoring.schema import nearest
from training import train
from training.config import SECTIONS, Config, ConfigError
from training.errors import TrainingError

log = logging.getLogger("training")

METRICS: dict[str, Literal["minimize", "maximize"]] = {
    "auc": "maximize",
    "gauc": "maximize",
    "logloss": "minimize",
    "ne": "minimize",
}


@dataclass(frozen=True, slots=True)
class Search:
    """What to search: trials, the validation metric, and a range for each `section.key`."""

    trials: int
    metric: str
    ranges: Mapping[str, Mapping[str, Any]]

    @classmethod
    def parse(cls, tables: Mapping[str, Any], config: Config) -> Search:
        """Check a [tune] section; raises ConfigError."""
        for key in tables:
            if key not in ("trials", "metric", "ranges"):
                raise ConfigError(f"[tune] unknown key '{key}'{nearest(key, ('trials', 'metric', 'ranges'))}")
        trials, metric, ranges = tables.get("trials", 20), tables.get("metric", "auc"), tables.get("ranges", {})
        if not isinstance(trials, int) or isinstance(trials, bool) or trials < 1:
            raise ConfigError("[tune] trials must be an integer of at least 1")
        if metric not in METRICS:
            raise ConfigError(f"[tune] metric = '{metric}' must be one of {', '.join(METRICS)}")
        if not isinstance(ranges, dict) or not ranges:
            raise ConfigError(
                '[tune.ranges] must give at least one range, as "train.deep_lr" = {low = 1e-4, high = 0.1}'
            )
        known = [f"{s}.{key}" for s in SECTIONS if s in ("model", "train") for key in config.to_dict()[s]]
        for name, found in ranges.items():
            if name not in known:
                raise ConfigError(f"[tune.ranges] '{name}' cannot be searched{nearest(name, known)}")
            _check_range(name, found)
        return cls(trials, metric, ranges)


def tune(path: Path, data: Path, *, device: str, trials: int | None, seed: int) -> dict[str, Any]:
    """The best settings found, their validation metric and how many trials went; raises ConfigError."""
    try:
        import optuna
    except ModuleNotFoundError:
        raise ConfigError("tune needs Optuna: pip install 'twinrank[tune]'") from None
    tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    section = tables.pop("tune", None)
    if not isinstance(section, dict):
        raise ConfigError(f"{path}: a [tune] section with ranges is needed")
    config = Config.from_dict(tables)
    search = Search.parse(section, config)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction=METRICS[search.metric], sampler=optuna.samplers.TPESampler(seed=seed))

    def objective(trial: optuna.Trial) -> float:
        settings = {name: _suggest(trial, name, found) for name, found in search.ranges.items()}
        try:
            value = _trial(_with(config, settings), data, device, search.metric, Path(cache))
        except TrainingError as error:
            log.warning("warning: trial %d gave nothing: %s", trial.number + 1, error)
            raise optuna.TrialPruned from None
        log.info("trial %d: %s %.5f with %s", trial.number + 1, search.metric, value, json.dumps(settings))
        trial.set_user_attr("settings", settings)
        return value

    with tempfile.TemporaryDirectory(prefix="twinrank-tune-") as cache:  # the trials encode the data once
        study.optimize(objective, n_trials=trials or search.trials)
    done = [one for one in study.trials if one.value is not None]
    if not done:
        raise ConfigError("no trial gave a metric; the warnings above say why")
    best = study.best_trial
    return {"metric": search.metric, "valid": best.value, "trials": len(done), "settings": best.user_attrs["settings"]}


def toml_lines(settings: Mapping[str, Any]) -> list[str]:
    """The settings as lines for a config, section by section."""
    lines = []
    for section in SECTIONS:
        found = {name.partition(".")[2]: value for name, value in settings.items() if name.startswith(f"{section}.")}
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in found.items())] if found else []
    return lines


def _trial(config: Config, data: Path, device: str, metric: str, cache: Path) -> float:
    level = log.level
    with tempfile.TemporaryDirectory(prefix="twinrank-tune-") as folder:
        log.setLevel(logging.ERROR)
        try:
            where = (data, Path(folder), "trial")
            version = train.main(config, *where, device=device, command="tune", cache=cache)
        finally:
            log.setLevel(level)
        found = json.loads((version / "manifest.json").read_text(encoding="utf-8"))["metrics"]["valid"][metric]
    if found is None:
        raise TrainingError(f"the validation {metric} is undefined")
    return float(found)


def _with(config: Config, settings: Mapping[str, Any]) -> Config:
    tables = config.to_dict()
    for name, value in settings.items():
        section, _, key = name.partition(".")
        tables[section][key] = value
    return Config.from_dict(tables)


def _suggest(trial: Any, name: str, found: Mapping[str, Any]) -> Any:
    if "choices" in found:
        # By number: a study keeps plain values only, and a choice may be a list.
        return found["choices"][trial.suggest_int(name, 0, len(found["choices"]) - 1)]
    low, high, by_log = found["low"], found["high"], bool(found.get("log", False))
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=by_log)
    return trial.suggest_float(name, float(low), float(high), log=by_log)


def _check_range(name: str, found: object) -> None:
    where = f"[tune.ranges] '{name}'"
    if not isinstance(found, dict) or not (
        set(found) == {"choices"} or {"low", "high"} <= set(found) <= {"low", "high", "log"}
    ):
        raise ConfigError(f"{where} must be {{low, high}}, with log = true where wanted, or {{choices = [...]}}")
    if "choices" in found:
        if not isinstance(found["choices"], list) or not found["choices"]:
            raise ConfigError(f"{where}: choices must be a list that is not empty")
        return
    numbers = [found["low"], found["high"]]
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in numbers) or numbers[0] >= numbers[1]:
        raise ConfigError(f"{where}: low and high must be numbers, low the smaller one")
    if found.get("log") and numbers[0] <= 0:
        raise ConfigError(f"{where}: low must be above 0 on a logarithmic scale")
