"""Arrays of a batch to the device in one copy, and its scores back in one."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from service.scoring.encoded import Floats

Array = npt.NDArray[np.float32] | npt.NDArray[np.int64]
_ALIGNED = 16  # bytes; every array begins at a multiple, so that a device can read it as whole numbers


class Transfer:
    """Each thread has buffers of its own; on the CPU nothing is copied."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._own = threading.local()

    def put(self, arrays: Sequence[Array]) -> list[torch.Tensor]:
        """The arrays as tensors on the device, in their shapes and types."""
        if self._device.type == "cpu":
            return [torch.from_numpy(one) for one in arrays]
        return self._staging().put(arrays, self._device)

    def get(self, scores: torch.Tensor) -> Floats:
        """A tensor of the device as float32, once everything before it is done."""
        if self._device.type == "cpu":
            return np.asarray(scores.float().numpy(), np.float32)
        return self._staging().get(scores)

    def _staging(self) -> Staging:
        found: Staging | None = getattr(self._own, "staging", None)
        if found is None:
            found = self._own.staging = Staging(pinned=self._device.type == "cuda")
        return found


class Staging:
    """One thread's host buffers, pinned where the device is a GPU: only from such is a copy asynchronous."""

    def __init__(self, *, pinned: bool) -> None:
        self._pinned = pinned
        self._in, self._out = self._buffer(0), self._buffer(0)
        self._sent: Any = torch.cuda.Event() if pinned else None  # type: ignore[no-untyped-call]  # untyped in torch

    def put(self, arrays: Sequence[Array], device: torch.device) -> list[torch.Tensor]:
        """All arrays in one buffer, one copy, and views of it on the device."""
        starts, end = [], 0
        for one in arrays:
            starts.append(end)
            end += -(-one.nbytes // _ALIGNED) * _ALIGNED
        if self._sent is not None:
            self._sent.synchronize()  # the copy before this one still reads the buffer
        if end > self._in.numel():
            self._in = self._buffer(end)
        host = self._in.numpy()
        for one, start in zip(arrays, starts, strict=True):
            host[start : start + one.nbytes] = np.ascontiguousarray(one).reshape(-1).view(np.uint8)
        # A copy of its own also where the device is the host: the next batch writes into the buffer.
        there = torch.empty(end, dtype=torch.uint8, device=device)
        there.copy_(self._in[:end], non_blocking=True)
        if self._sent is not None:
            self._sent.record()
        return [_view(there, one, start) for one, start in zip(arrays, starts, strict=True)]

    def get(self, scores: torch.Tensor) -> Floats:
        """The scores in an array of their own."""
        scores = scores.to(torch.float32).contiguous()
        if scores.nbytes > self._out.numel():
            self._out = self._buffer(scores.nbytes)
        out = self._out[: scores.nbytes].view(torch.float32).view(scores.shape)
        out.copy_(scores, non_blocking=True)
        if self._pinned:
            torch.cuda.current_stream(scores.device).synchronize()
        return np.array(out.numpy(), np.float32)

    def _buffer(self, size: int) -> torch.Tensor:
        room = 1 << max(12, math.ceil(math.log2(max(1, size))))  # doubled, so that it seldom grows
        return torch.empty(room, dtype=torch.uint8, pin_memory=self._pinned)


def _view(buffer: torch.Tensor, like: Array, start: int) -> torch.Tensor:
    dtype = torch.float32 if like.dtype == np.float32 else torch.int64
    return buffer[start : start + like.nbytes].view(dtype).view(like.shape)
