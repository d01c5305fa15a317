"""Memory of the whole service: what comes with a version goes with it."""

from __future__ import annotations

from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.server import Service, serving


def held(service: Service) -> int:
    """Proportional set size of all processes, bytes: what is shared counts once."""
    assert service.process is not None
    return sum(one.memory_full_info().pss for one in [psutil.Process(service.process.pid), *service.workers()])


@pytest.mark.slow
def test_fifty_swaps_leave_what_five_did(tiny_artifacts: Path, tmp_path: Path) -> None:
    with serving(tiny_artifacts, tmp_path, "--workers", "2", "--load", "none", "--weights", "v1=1") as service:
        after = []
        for number in range(50):
            assert service.put("/models/v3").status_code == 200
            body = {"user": {"user_id": f"u{number}"}, "candidates": ["i1", "i2"], "version": "v3"}
            assert service.predict(body).status_code == 200
            assert httpx.delete(service.url + "/models/v3", timeout=60).status_code in (200, 204)
            after.append(held(service))
        assert after[-1] <= 1.1 * after[4]
        print([size >> 20 for size in after[4::9]])
