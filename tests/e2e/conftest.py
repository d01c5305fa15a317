"""Two tiny versions of constant scores, and services over them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.server import Service, serving
from tests.tiny import publish_tiny


@pytest.fixture(scope="session")
def tiny_artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """v1 scores 0.1 and v2 0.9, whatever is asked; v3 scores like a model."""
    root = tmp_path_factory.mktemp("artifacts")
    publish_tiny(root, "v1", constant=0.1)
    publish_tiny(root, "v2", constant=0.9)
    publish_tiny(root, "v3", seed=3)
    return root


@pytest.fixture(scope="module")
def service(tiny_artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A two-worker service at 50/50 that the tests of one file share."""
    options = ("--workers", "2", "--load", "all", "--weights", "v1=50,v2=50")
    with serving(tiny_artifacts, tmp_path_factory.mktemp("service"), *options) as running:
        yield running
