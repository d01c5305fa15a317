"""Memory given back to the system, where the C library would keep it for later."""

from __future__ import annotations

import ctypes
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

# glibc's malloc.h
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
# Linux's mman.h
MADV_DONTNEED = 4
# Of /proc/…/smaps: start, end, rights, inode, and the lines of sizes below.
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (....) [0-9a-f]+ [0-9a-f:]+ (\d+).*\n((?:[A-Z].*\n)+)", re.MULTILINE)
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


def let_go_of_code() -> None:
    """Unmap what imports read of the libraries' files; whatever is used again is read again, from the page cache.

    Mappings with pages of their own, which hold relocated addresses, are left alone.
    """
    advise = _libc().madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    with suppress(OSError):  # a sandbox may not show it
        for start, end in clean_mappings(Path("/proc/self/smaps").read_text()):
            advise(start, end - start, MADV_DONTNEED)


def clean_mappings(smaps: str) -> list[tuple[int, int]]:
    """(start, end) of each mapping of a file that is never written and that the process has changed no page of."""
    found = []
    for start, end, rights, inode, sizes in _MAPPING.findall(smaps):
        if (
            "w" not in rights
            and "r" in rights
            and inode != "0"
            and re.search(r"^Anonymous: +0 kB", sizes, re.MULTILINE)
        ):
            found.append((int(start, 16), int(end, 16)))
    return found


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
