"""What of a GPU can be said without one."""

from __future__ import annotations

import pytest

from training.config import ConfigError
from training.distributed import _take_gpu, backend_of
from training.gpu import Gpu, told


def test_on_the_cpu_nothing_is_told_of_a_gpu() -> None:
    gpu = Gpu("cpu")
    gpu.sample()
    assert gpu.taken() == {}
    assert told({}) == ""


def test_how_busy_a_gpu_is_and_how_full_is_told_in_few_words() -> None:
    found = {"utilisation": 0.42, "memory": 2.0**30, "peak": 3 * 2.0**30, "total": 140 * 2.0**30}
    assert told(found) == ", GPU busy 42%, GPU memory 3.0 of 140 GiB"
    del found["utilisation"]  # a driver that does not tell
    assert told(found) == ", GPU memory 3.0 of 140 GiB"


def test_gradients_travel_by_nccl_where_they_lie_on_gpus_and_all_else_by_gloo() -> None:
    assert backend_of("cuda") == "cpu:gloo,cuda:nccl"
    assert backend_of("cpu") == "gloo"


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(ConfigError, match=r"each process needs its own|without NCCL"):
        _take_gpu(1)
