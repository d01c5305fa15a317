"""Which release this is."""

from __future__ import annotations

import importlib.metadata


def installed(package: str) -> str:
    """The version of an installed package; "unknown" where it runs from a bare checkout."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
