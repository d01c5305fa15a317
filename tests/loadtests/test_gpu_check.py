"""The script for a lent GPU is tried on the CPU, so that it does not break unseen."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "loadtests"))
from gpu_work import made, trained

ROOT = Path(__file__).resolve().parents[2]
CHECKS = {
    "serving": {
        *("fit", "exam", "parity", "ranking_equals_rows", "together_as_alone", "evaluate", "http"),
        *("precisions", "swaps"),
    },
    "training": {"parity", "gradients", "ahead", "resumed", "full"},
}


@pytest.mark.slow
@pytest.mark.parametrize("part", CHECKS)
def test_every_check_runs(part: str):
    command = [sys.executable, "loadtests/gpu_check.py", part, "--device", "cpu", "--rows", "4000", "--no-times"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["failed"] == []
    assert report.keys() >= CHECKS[part]


def test_the_timed_work_trains_and_tells_its_figures(tmp_path: Path):
    found = trained(made(600, 300), tmp_path, "cpu", "bf16", batch_size=128, epochs=2)
    assert len(found["auc"]) == len(found["seconds"]) == 2
    assert found["step ms"] == pytest.approx(128 / found["rows/s"] * 1000, rel=0.02)
