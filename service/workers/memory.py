"""Memory given back to the system, where the C library keeps it for later."""

from __future__ import annotations

import ctypes
from functools import cache

M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8


def give_back() -> None:
    """Return what was freed to the system; blocks for milliseconds, without Python's lock: call it off the loop."""
    trim = getattr(_libc(), "malloc_trim", None)
    if trim is not None:  # glibc's alone
        trim(0)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
