"""Memory goes back to the system: what was freed, and code that nobody runs any more."""

import subprocess
import sys
from pathlib import Path

from service.workers.memory import clean_mappings

SMAPS = """\
55a0-55b0 r--p 00000000 fe:00 11                                         /usr/lib/clean.so
Rss:                  64 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
55b0-55c0 r--p 00001000 fe:00 11                                         /usr/lib/relocated.so
Rss:                  64 kB
Anonymous:             4 kB
VmFlags: rd mr mw me
55c0-55d0 rw-p 00002000 fe:00 11                                         /usr/lib/data.so
Rss:                   0 kB
Anonymous:             0 kB
VmFlags: rd wr mr mw me
55d0-55e0 r--p 00000000 00:00 0
Rss:                   0 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
7ff0-7ff8 r-xp 00000000 fe:00 12                                         /usr/lib/with a space.so
Rss:                   8 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_only_files_pages_that_are_as_the_file_has_them_are_clean():
    assert clean_mappings(SMAPS) == [(0x55A0, 0x55B0), (0x7FF0, 0x7FF8)]


def test_the_kernel_lists_mappings_in_this_form():
    assert len(clean_mappings(Path("/proc/self/smaps").read_text())) > 10


def test_what_was_let_go_of_runs_on():
    code = (
        "import json, sqlite3, numpy, psutil\n"
        "from service.workers.memory import let_go_of_code\n"
        "mapped = lambda: psutil.Process().memory_info().shared\n"
        "before = mapped(); let_go_of_code(); after = mapped()\n"
        "assert numpy.linalg.inv(numpy.eye(3)).sum() == 3 and sqlite3.connect(':memory:').execute('SELECT 1')\n"
        "print(after / before)"
    )
    assert float(run(code)) < 0.7


def test_freed_blocks_go_back_to_the_system():
    code = (
        "import psutil\n"
        "from service.workers.memory import give_back, keep_little\n"
        "held = lambda: psutil.Process().memory_info().rss >> 20\n"
        "keep_little(); before = held()\n"
        "import ctypes; libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p\n"
        "blocks = [libc.malloc(100_000) for _ in range(1000)]\n"
        "[ctypes.memset(block, 1, 100_000) for block in blocks]\n"
        "full = held(); [libc.free(ctypes.c_void_p(block)) for block in blocks[:-1]]\n"
        "give_back(); print(full - before, held() - before)"
    )
    full, left = map(int, run(code).split())
    assert full > 90
    assert left < 10
