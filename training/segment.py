"""Memory that the processes of one machine share.

It has no name in any file system: a kill leaves nothing behind, and a container's small /dev/shm is no limit. Who may
open it is who may look into the process that made it: the same user, in the same machine or container.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import secrets
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from training.distributed import Group

Spec: TypeAlias = tuple[Sequence[int], torch.dtype]  # of a tensor
_LINE = 64  # bytes of a cache's line: no two tensors share one
_TOKEN = 32  # bytes
_NAME = "twinrank"


class Segment:
    """Some bytes of memory, mapped here; the process whose `rank` made them may make them more."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._map = mmap.mmap(file, os.fstat(file).st_size)

    @staticmethod
    def opened(group: Group, owner: int, size: int) -> Segment | None:
        """`size` bytes of zeros that process `owner` makes and all open; None where not all of them can."""
        file, said = -1, None
        if group.rank == owner:
            file, said = _made(size)
        number, token = group.gather_objects(said)[owner] or ("", b"")
        if group.rank != owner:
            file = _found(number, token)
        if not all(group.gather_objects(file >= 0)):
            if file >= 0:
                os.close(file)
            return None
        return Segment(file)

    def __len__(self) -> int:
        return len(self._map)

    def grow(self, size: int) -> None:
        """Have at least `size` bytes; tensors made before stay what they were, on the same memory."""
        if len(self) < size:
            if os.fstat(self._file).st_size < size:
                os.ftruncate(self._file, size)
            self._map = mmap.mmap(self._file, size)

    def tensors(self, specs: Sequence[Spec]) -> list[Tensor]:
        """Tensors side by side from the beginning of the segment, which has their `bytes_of`."""
        found, at = [], 0
        for shape, dtype in specs:
            count = math.prod(shape)
            flat = torch.frombuffer(self._map, dtype=dtype, count=count, offset=at) if count else torch.empty(0)
            found.append(flat.to(dtype).view(tuple(shape)))
            at += _bytes(shape, dtype)
        return found

    def hold(self, rank: int) -> None:
        """Show that process `rank` lives, until it ends."""
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, rank)

    def is_held(self, rank: int) -> bool:
        """Whether another process, `rank`, lives."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, rank)
        except OSError:
            return True
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, rank)
        return False


def bytes_of(specs: Sequence[Spec]) -> int:
    return sum(_bytes(shape, dtype) for shape, dtype in specs)


def _bytes(shape: Sequence[int], dtype: torch.dtype) -> int:
    return -(-math.prod(shape) * dtype.itemsize // _LINE) * _LINE


def _made(size: int) -> tuple[int, tuple[str, bytes] | None]:
    """A new one and how others find it, -1 and None where the system has no such memory."""
    token = secrets.token_bytes(_TOKEN)
    try:
        file = os.memfd_create(_NAME, os.MFD_CLOEXEC)
        os.fchmod(file, 0o600)
        os.ftruncate(file, size + _TOKEN)
        os.pwrite(file, token, size)  # behind what is used: who finds it there has found this one
    except (AttributeError, OSError):  # AttributeError: not Linux
        return -1, None
    return file, (f"/proc/{os.getpid()}/fd/{file}", token)


def _found(path: str, token: bytes) -> int:
    """Another process's, -1 where it is not to be had: the process is on another machine."""
    try:
        if not os.readlink(path).startswith(f"/memfd:{_NAME}"):  # before it is opened: it may be anything
            return -1
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return -1
    if os.pread(file, _TOKEN, max(0, os.fstat(file).st_size - _TOKEN)) == token:
        return file
    os.close(file)
    return -1
