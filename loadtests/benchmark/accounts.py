"""What a process tree uses: CPU seconds and memory, beside what the rest of the machine does meanwhile. Linux alone."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Moment:
    """Readings at one time, in seconds since some start; differences mean something."""

    at: float
    tree_cpu: float
    busy: float  # of the whole machine
    stolen: float  # taken by the host of a virtual machine


@dataclass(frozen=True, slots=True)
class Memory:
    """Of a process tree, MB (10^6 bytes). PSS counts a page shared by n processes as 1/n in each."""

    pss_mb: float
    rss_mb: float


def tree(root: int) -> list[int]:
    """The process and everything below it that lives; nothing where it has ended."""
    try:
        process = psutil.Process(root)
        return [root, *(child.pid for child in process.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def moment(root: int) -> Moment:
    busy, stolen = _machine(Path("/proc/stat").read_text().splitlines()[0])
    return Moment(time.perf_counter(), sum(map(_cpu, tree(root))), busy, stolen)


def memory(root: int) -> Memory:
    totals = {"Pss": 0, "Rss": 0}
    for pid in tree(root):
        for name, kib in re.findall(r"^(Pss|Rss):\s+(\d+) kB", _read(f"/proc/{pid}/smaps_rollup"), re.MULTILINE):
            totals[name] += int(kib)
    return Memory(totals["Pss"] * 1024 / 1e6, totals["Rss"] * 1024 / 1e6)


def _cpu(pid: int) -> float:
    """With what its ended children used: the sum over a tree does not fall when one of them ends."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS if fields else 0.0


def _machine(line: str) -> tuple[float, float]:
    """(busy, stolen) seconds of all cores, of the first line of /proc/stat."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, line.split()[1:9])
    return (user + nice + system + irq + softirq) / TICKS, steal / TICKS


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        return ""
