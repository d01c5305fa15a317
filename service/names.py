"""The pattern that names of versions and experiments follow: never a path, never an address."""

from __future__ import annotations

import re

from service.scoring.files import is_version_name

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RULE = "1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"


def is_version(value: object) -> bool:
    """Whether the value may name a version."""
    return isinstance(value, str) and is_version_name(value)


def is_experiment(value: object) -> bool:
    """Whether the value may name an experiment."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None
