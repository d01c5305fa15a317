"""Fixtures that more than one room uses; what one room needs stays in that room."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgresql


@pytest.fixture(scope="session", name="cluster")
def _cluster() -> Iterator[postgresql.Cluster]:
    """A PostgreSQL server of this test run alone; where none is installed what needs it is skipped, but not in CI."""
    programs = postgresql.binaries()
    if programs is None:
        assert not os.environ.get("CI"), "PostgreSQL is not installed: its tests would be skipped unseen"
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    with postgresql.running(programs) as cluster:
        yield cluster


@pytest.fixture(name="any_state", params=["sqlite", "postgresql"])
def _any_state(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a new, empty state, in each kind of database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state.db"
    cluster: postgresql.Cluster = request.getfixturevalue("cluster")
    return cluster.state()
