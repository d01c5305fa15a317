"""Tiny versions for the service's tests: v1 always answers 0.1, v2 0.9, v3 whatever its seed made of it."""

import shutil

import pytest

from tests.service.workplace import settings
from tests.tiny import publish_tiny


@pytest.fixture(scope="session", name="published")
def _published(tmp_path_factory):
    root = tmp_path_factory.mktemp("published")
    publish_tiny(root, "v1", constant=0.1, manifest={"created": "2026-01-01T00:00:00+00:00"})
    publish_tiny(root, "v2", constant=0.9, manifest={"created": "2026-03-01T00:00:00+00:00"})
    publish_tiny(root, "v3", seed=3, manifest={"created": "2026-02-01T00:00:00+00:00"})
    return root


@pytest.fixture(name="artifacts")
def _artifacts(published, tmp_path):
    """A copy that a test may damage."""
    shutil.copytree(published, tmp_path / "artifacts")
    return tmp_path / "artifacts"


@pytest.fixture(name="config")
def _config(artifacts, tmp_path):
    """A service whose state begins with v1 alone."""
    return settings(artifacts, tmp_path / "state.db", weights={"v1": 1.0}, load="none")


@pytest.fixture(name="state")
def _state(tmp_path):
    """The URL of an empty state. A file whose tests are to hold in every database has a fixture of this name."""
    return f"sqlite:///{tmp_path}/state.db"
