"""The pattern that names of versions and experiments follow: never a path, never an address."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RULE = "1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"


def is_experiment_name(text: object) -> bool:
    """Whether the text may name an experiment; `scoring.files.is_version_name` is the twin for versions."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None
