"""The device to compute on, and the cores that this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

DEVICES = ("auto", "cpu", "cuda")
FLOAT32, TF32, BF16 = "float32", "tf32", "bf16"
PRECISIONS = (FLOAT32, TF32, BF16)


class DeviceError(RuntimeError):
    """The device that was asked for cannot be used; the message carries the driver's reason."""


def choose_device(wanted: str) -> str:
    """'cpu' or 'cuda' for auto, cpu or cuda; raises DeviceError where cuda is asked for and not usable."""
    if wanted == "cpu":
        return "cpu"
    reason = _cuda_trouble()
    if reason is None:
        return "cuda"
    if wanted == "auto":
        return "cpu"
    raise DeviceError(f"no usable CUDA device: {reason}")


def limit_memory(device: str, fraction: float) -> None:
    """Let this process hold at most `fraction` of a GPU's memory; what wants more is out of memory."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.set_per_process_memory_fraction(fraction)


def allowed_cores() -> int:
    """Whole cores this process may use: its CPU affinity, within the container's CPU quota, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _cgroup_cores()))


def _cuda_trouble() -> str | None:
    import torch

    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]  # untyped in torch
        return f"torch {torch.__version__} is built without CUDA"
    try:
        torch.zeros(1, device="cuda")
    except (RuntimeError, AssertionError) as error:
        return str(error).strip().splitlines()[0]
    return None


def _cgroup_cores() -> int:
    unlimited = 1 << 20
    try:  # cgroup 2
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()[:2]
    except (OSError, ValueError):
        try:  # cgroup 1
            quota = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text().strip()
            period = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return unlimited
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return unlimited  # "max" and -1 mean no limit
    return math.ceil(int(quota) / int(period))
