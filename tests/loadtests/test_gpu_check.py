"""The script for a lent GPU is tried on the CPU, so that it does not break unseen."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_every_check_of_serving_runs():
    command = [sys.executable, "loadtests/gpu_check.py", "serving", "--device", "cpu", "--rows", "4000", "--no-times"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["failed"] == []
    checks = {"fit", "exam", "parity", "ranking_equals_rows", "together_as_alone", "evaluate", "http"}
    assert report.keys() >= checks | {"precisions", "swaps"}
