"""The service's settings: a frozen value, checked at birth, read from options and environment once.

An option given on the command line wins over `TWINRANK_<OPTION>`, which wins over the default. The tokens and the
secret come from the environment alone: a command line is visible to every user of the machine.
"""

from __future__ import annotations

import argparse
import ipaddress
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.names import RULE
from service.scoring.device import FLOAT32, PRECISIONS
from service.scoring.files import is_version_name
from service.traffic import shares_of

Weights = dict[str, float]


class SettingsError(ValueError):
    """A setting that cannot be: one plain line that begins with the option's name."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything `serve` can be told. Sizes in their named units, times in seconds unless the name says otherwise."""

    artifacts: Path = Path("artifacts")
    state: str = field(default="sqlite:///twinrank.db", repr=False)  # may have a password
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    device: str = "auto"
    load: str = "newest"
    weights: Weights | None = None
    max_body_mib: float = 8.0
    max_rows: int = 4096
    queue_rows: int = 0  # 0: four requests of the largest size
    budget_ms: float = 50.0
    timeout_ms: float = 0.0  # 0: none
    fallback: str = "off"
    unknown_features: str = "reject"
    attribution_hours: float = 24.0
    capture: Path | None = None
    capture_fraction: float = 0.01
    gpu_memory_fraction: float = 0.9  # of all workers together
    precision: str = FLOAT32
    precision_tolerance: float = 1e-3
    planned_impressions: float = 100_000.0
    drain_seconds: float = 30.0
    threads: int = 1  # intra-op threads of one worker
    admin_token: str | None = field(default=None, repr=False)
    client_token: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)  # signs prediction ids; "NEW,OLD" where it was changed

    def __post_init__(self) -> None:
        if not self.queue_rows:
            object.__setattr__(self, "queue_rows", 4 * self.max_rows)
        for name in ("workers", "max_rows", "threads"):
            _check(getattr(self, name) >= 1, name, "must be at least 1")
        for name in ("max_body_mib", "drain_seconds", "timeout_ms"):
            value = getattr(self, name)
            _check(math.isfinite(value) and value >= 0, name, "must be a number of at least 0")
        _check(0 < self.gpu_memory_fraction <= 1, "gpu_memory_fraction", "must be more than 0 and at most 1")
        _check(0 < self.capture_fraction <= 1, "capture_fraction", "must be more than 0 and at most 1")
        _check(0 < self.precision_tolerance <= 1, "precision_tolerance", "must be more than 0 and at most 1")
        _check(0 < self.attribution_hours < math.inf, "attribution_hours", "must be a number of more than 0")
        _check(self.max_body_mib > 0, "max_body_mib", "must be more than 0")
        _check(0 < self.budget_ms < math.inf, "budget_ms", "must be a number of more than 0")
        _check(0 < self.planned_impressions < math.inf, "planned_impressions", "must be a number of more than 0")
        _check(0 <= self.port <= 65535, "port", "must be between 0 and 65535")
        _check(self.queue_rows >= self.max_rows, "queue_rows", f"must be at least --max-rows ({self.max_rows})")
        if not all(self.secrets):
            raise SettingsError("TWINRANK_SECRET: an empty one beside a comma; NEW,OLD where it was changed")
        _check_state(self.state)
        _check_built(self)

    @property
    def max_body_bytes(self) -> int:
        return int(self.max_body_mib * 2**20)

    @property
    def secrets(self) -> list[str]:
        """What prediction ids may be signed with, the one that signs them first; empty: the state store has it."""
        return [] if self.secret is None else self.secret.split(",")

    @property
    def loopback(self) -> bool:
        """Whether the server is bound to this machine alone."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def _check(right: bool, name: str, rule: str) -> None:
    if not right:
        raise SettingsError(f"--{name.replace('_', '-')}: {rule}")


def _check_state(url: str) -> None:
    if url.startswith(("postgresql://", "postgres://")):
        return
    path, form = url.removeprefix("sqlite:///"), "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
    shown = repr(url) if "@" not in url else "what was given"  # it may have a password
    _check(path != url and path not in ("", ":memory:"), "state", f"{shown} is not of the form {form}")


def _check_built(settings: Settings) -> None:
    """Refuse what later releases bring, unless it is given its default."""
    for name, default in (("fallback", "off"),):
        _check(getattr(settings, name) == default, name, f"not built yet; only its default, {default}, is taken")


def _folder(text: str) -> Path:
    if "://" in text:
        raise ValueError("an address is not built yet; use a folder")
    return Path(text)


def _weights(text: str) -> Weights:
    weights: Weights = {}
    for part in text.split(","):
        name, equals, weight = part.strip().partition("=")
        if not equals or not is_version_name(name):
            raise ValueError(f"{part.strip()!r} is not of the form VERSION=WEIGHT (a version is {RULE})")
        if name in weights:
            raise ValueError(f"{name!r} stands there twice")
        weights[name] = _number(weight)
    if not shares_of(weights):
        raise ValueError("no version has weight")
    return weights


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _choice(*known: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(f"{text!r} is none of {', '.join(known)}")
        return text

    return parse


# Option, what it shows in --help, how its text is read, what it is for.
OPTIONS: tuple[tuple[str, str, Callable[[str], Any], str], ...] = (
    ("artifacts", "DIR", _folder, "folder of the versions (default: artifacts)"),
    ("state", "URL", str, "shared state, sqlite:///FILE or postgresql://... (default: sqlite:///twinrank.db)"),
    ("host", "H", str, "address to bind (default: 127.0.0.1)"),
    ("port", "P", _whole, "port to bind; 0 takes a free one (default: 8080)"),
    ("workers", "N", _whole, "worker processes (default: 1)"),
    ("device", "auto|cpu|cuda", _choice("auto", "cpu", "cuda"), "where the models run (default: auto)"),
    ("load", "newest|all|none", _choice("newest", "all", "none"), "what an empty state loads (default: newest)"),
    ("weights", "v1=90,v2=10", _weights, "the split of an empty state (default: all to the newest version)"),
    ("max-body-mib", "MIB", _number, "largest request body (default: 8)"),
    ("max-rows", "N", _whole, "most rows of one request (default: 4096)"),
    ("queue-rows", "N", _whole, "most rows waiting for one version (default: 4 times --max-rows)"),
    ("budget-ms", "MS", _number, "time within which what is accepted is answered; the rest gets 429 (default: 50)"),
    ("timeout-ms", "MS", _number, "deadline of a request that names none; 0 is none (default: 0)"),
    ("fallback", "off|default", _choice("off", "default"), "not built yet (default: off)"),
    ("unknown-features", "reject|ignore", _choice("reject", "ignore"), "unknown feature names (default: reject)"),
    ("attribution-hours", "H", _number, "how long after a prediction its events count (default: 24)"),
    ("capture", "DIR", _folder, "folder for sampled requests and their answers, as Parquet (default: none)"),
    ("capture-fraction", "F", _number, "share of the requests that is captured (default: 0.01)"),
    ("gpu-memory-fraction", "F", _number, "share of the GPU's memory for all workers together (default: 0.9)"),
    ("precision", "|".join(PRECISIONS), _choice(*PRECISIONS), "of matrix products (default: float32)"),
    (
        "precision-tolerance",
        "E",
        _number,
        "worst error of a faster precision against a version's exam (default: 0.001)",
    ),
    ("planned-impressions", "N", _number, "impressions at which an experiment will be decided (default: 100000)"),
    ("drain-seconds", "S", _number, "longest wait for running requests on exit (default: 30)"),
    ("threads", "N", _whole, "intra-op threads of a worker (default: allowed cores / workers)"),
)
TOKENS = ("admin_token", "client_token", "secret")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give the parser every option of `serve`, as text: `read_settings` reads it beside the environment."""
    for option, metavar, _, about in OPTIONS:
        parser.add_argument(f"--{option}", metavar=metavar, help=f"{about}; also {_variable(option)}")


def read_settings(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of a command line and an environment; SettingsError names the option or the variable."""
    given: dict[str, Any] = {}
    for option, _, parse, _ in OPTIONS:
        name = option.replace("-", "_")
        text, source = getattr(options, name), f"--{option}"
        if text is None:
            text, source = environ.get(_variable(option)) or None, _variable(option)
        if text is None:
            continue
        try:
            given[name] = parse(text)
        except ValueError as error:
            raise SettingsError(f"{source}: {error}") from None
    for name in TOKENS:
        given[name] = environ.get(_variable(name)) or None
    if "threads" not in given:
        given["threads"] = _fair_threads(given.get("workers", 1))
    return Settings(**given)


def _fair_threads(workers: int) -> int:
    from service.scoring.device import allowed_cores

    return max(1, allowed_cores() // max(1, workers))


def _variable(option: str) -> str:
    return "TWINRANK_" + option.upper().replace("-", "_")
