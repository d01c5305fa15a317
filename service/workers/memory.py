"""Memory given back to the system, where the C library would keep it for later."""

from __future__ import annotations

import ctypes
from functools import cache

# glibc's malloc.h
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
# A batch's largest array stays below the first, so that the hot path makes no system call; a version's tables do not,
# and go back the moment they are freed.
LARGE_BYTES = 8 << 20
# Free memory that is kept between batches.
KEPT_BYTES = 64 << 20
# Each arena keeps its own free memory, and threads would be given eight for every core.
ARENAS = 2


def keep_little() -> None:
    """Make this process's allocator, where it is glibc's, keep less; to be called before its threads start."""
    set_option = getattr(_libc(), "mallopt", None)
    if set_option is not None:
        set_option(M_ARENA_MAX, ARENAS)
        set_option(M_MMAP_THRESHOLD, LARGE_BYTES)
        set_option(M_TRIM_THRESHOLD, KEPT_BYTES)


def give_back() -> None:
    """Return what was freed to the system; blocks for milliseconds, without Python's lock: call it off the loop."""
    trim = getattr(_libc(), "malloc_trim", None)
    if trim is not None:
        trim(0)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
