"""The pattern that names of versions and experiments follow: never a path, never an address."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RULE = "1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"


def is_name(text: object) -> bool:
    """Whether the text may name an experiment (a version has one reserved name more, see `is_version`)."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def is_version(text: object) -> bool:
    """Whether the text may name a version; `weights` is taken by the address of the split."""
    return is_name(text) and text != "weights"
