"""A trainer killed at any moment: what is visible always verifies."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from service.scoring.artifact import open_artifact, version_names
from tests.e2e.world import make_world


def start(data: Path, artifacts: Path, version: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "training", "fit", "--config", str(data / "config.toml"), "--data", str(data)]
    command += ["--artifacts", str(artifacts), "--version", version]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_at_random(data: Path, artifacts: Path, kills: int) -> int:
    """Kill that many fits, half of them near publication; returns how many had published by then."""
    started = time.monotonic()
    assert start(data, artifacts, "whole").wait(120) == 0
    length = time.monotonic() - started
    moments = random.Random(7)
    for number in range(kills):
        process = start(data, artifacts, f"v{number}")
        if number % 2:
            time.sleep(moments.uniform(0, length))
        else:
            wait_for_publication(process, artifacts, f"v{number}")
            time.sleep(moments.uniform(0, 0.2))
        process.kill()
        process.wait(10)
        for name in version_names(artifacts):
            assert open_artifact(artifacts / name).version == name
    return len(version_names(artifacts)) - 1


def wait_for_publication(process: subprocess.Popen[bytes], artifacts: Path, version: str) -> None:
    """Until the version's work in progress appears."""
    while process.poll() is None and not any(artifacts.glob(f".{version}-*")):
        time.sleep(0.002)


def test_ld02_a_killed_trainer_leaves_only_whole_versions(tmp_path: Path) -> None:
    data = make_world(tmp_path / "data", rows=1500)
    kill_at_random(data, tmp_path / "artifacts", 3)


@pytest.mark.slow
def test_twenty_killed_trainers_leave_only_whole_versions(tmp_path: Path) -> None:
    data = make_world(tmp_path / "data")
    published = kill_at_random(data, tmp_path / "artifacts", 20)
    print(f"20 kills, {published} of them after the version was published")
