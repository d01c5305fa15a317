import os

import pytest
import torch

from service.scoring.device import DeviceError, allowed_cores, choose_device


def test_op02_allowed_cores_follow_the_processs_own_affinity() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert allowed_cores() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert 1 <= allowed_cores() <= len(before)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_without_a_device_is_refused_with_the_reason() -> None:
    assert choose_device("auto") == "cpu"
    with pytest.raises(DeviceError, match=r"no usable CUDA device: \w"):
        choose_device("cuda")
