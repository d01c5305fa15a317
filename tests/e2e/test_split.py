"""The split of traffic: exact shares, one version a unit, whoever is asked and whenever."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from service.traffic import Split
from tests.e2e.server import serving

IDS = 100_000

DIGEST = """
import hashlib
from service.traffic import Split
split = Split(experiment="default", weights=(("v1", 70.0), ("v2", 30.0)), coverage=1.0, default="v1")
print(hashlib.sha256("".join(split.assign(str(n)).version for n in range(20_000)).encode()).hexdigest())
"""


def split(**weights: float) -> Split:
    return Split(experiment="default", weights=tuple(sorted(weights.items())), coverage=1.0, default="v1")


def test_ab01_a_hundred_thousand_ids_fall_within_four_standard_deviations() -> None:
    chosen = split(v1=70.0, v2=30.0)
    share = sum(chosen.assign(str(n)).version == "v1" for n in range(IDS)) / IDS
    assert abs(share - 0.7) < 4 * (0.7 * 0.3 / IDS) ** 0.5


def test_ab01_the_assignment_is_the_same_under_any_hash_seed() -> None:
    digests = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout)
    here = split(v1=70.0, v2=30.0)
    digests.add(hashlib.sha256("".join(here.assign(str(n)).version for n in range(20_000)).encode()).hexdigest() + "\n")
    assert len(digests) == 1


def test_a_ramp_moves_ten_percent_and_nobody_back() -> None:
    before, after = split(v1=50.0, v2=50.0), split(v1=60.0, v2=40.0)
    moves = [(before.assign(str(n)).version, after.assign(str(n)).version) for n in range(IDS)]
    assert sum(old != new for old, new in moves) / IDS == pytest.approx(0.1, abs=0.004)
    assert ("v1", "v2") not in moves


def test_ab01_four_workers_and_a_restart_agree_with_the_formula(tiny_artifacts: Path, tmp_path: Path) -> None:
    wanted = split(v1=70.0, v2=30.0)
    units = [f"unit-{n}" for n in range(150)]
    options = ("--workers", "4", "--load", "all", "--weights", "v1=70,v2=30")
    with serving(tiny_artifacts, tmp_path, *options) as service:

        def ask(unit: str) -> str:
            # A connection of its own, so that any of the workers may answer.
            return str(
                httpx.post(service.url + "/predict", json={"instances": [{"user_id": unit}]}).json()["model_version"]
            )

        with ThreadPoolExecutor(8) as pool:
            first = list(pool.map(ask, units))
        assert first == [wanted.assign(unit).version for unit in units]
        assert service.stop() == 0
        service.start()
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(ask, units)) == first
