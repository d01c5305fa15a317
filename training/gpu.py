"""What a GPU does while it trains: how busy it is, and how much of its memory is held.

Its utilisation is the driver's own figure: the share of the last moments in which a kernel ran. A model that waits for
its data, or steps that are too short to launch, are seen there at once. Read from the driver's library by ctypes, as
nvidia-smi does, so that no package is needed for it; absent where the driver does not tell, as on a slice of a GPU.
"""

from __future__ import annotations

import ctypes
import time

import torch

_EVERY = 1.0  # seconds between two samples
_LIBRARY = "libnvidia-ml.so.1"


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Gpu:
    """Samples of this process's GPU; on the CPU it tells nothing."""

    def __init__(self, device: str) -> None:
        self._there = device.startswith("cuda")
        self._driver, self._handle = _open() if self._there else (None, ctypes.c_void_p())
        self._samples: list[int] = []
        self._last = 0.0

    def sample(self) -> None:
        """Note how busy it is, at most once a second."""
        if self._driver is None or time.monotonic() - self._last < _EVERY:
            return
        self._last = time.monotonic()
        found = _Utilization()
        if self._driver.nvmlDeviceGetUtilizationRates(self._handle, ctypes.byref(found)) == 0:
            self._samples.append(found.gpu)

    def taken(self) -> dict[str, float]:
        """The mean `utilisation` (0 to 1) of the samples since the last call, `memory` held now by tensors and its
        `peak` so far, in bytes, and the device's `total`."""
        if not self._there:
            return {}
        samples, self._samples = self._samples, []
        found = {"utilisation": sum(samples) / len(samples) / 100} if samples else {}
        total = float(torch.cuda.mem_get_info()[1])
        peak = float(torch.cuda.max_memory_allocated())
        return {**found, "memory": float(torch.cuda.memory_allocated()), "peak": peak, "total": total}


def told(figures: dict[str, float]) -> str:
    """The figures in a few words, each led by a comma; empty without a GPU."""
    if not figures:
        return ""
    busy = f", GPU busy {figures['utilisation']:.0%}" if "utilisation" in figures else ""
    return f"{busy}, GPU memory {figures['peak'] / 2**30:.1f} of {figures['total'] / 2**30:.0f} GiB"


def _open() -> tuple[ctypes.CDLL | None, ctypes.c_void_p]:
    """The driver's library with a handle of this process's device, found by its id: numbers may be masked."""
    handle = ctypes.c_void_p()
    try:
        driver = ctypes.CDLL(_LIBRARY)
        uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}".encode()
        if driver.nvmlInit_v2() == 0 and driver.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)) == 0:
            return driver, handle
    except (OSError, AttributeError):  # no such library; a torch or a driver that lacks the name
        pass
    return None, handle
