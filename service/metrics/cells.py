"""One worker's numbers, in memory that its siblings can read: a file a worker and kind of series, as prometheus_client
lays them out for its multi-process mode, which also adds them up at a scrape.

The library's own instruments choose that mode, and its folder, from the environment when they are imported, and
observe one value at a time. These are bound to a folder by hand, and a histogram takes an array at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import mark_process_dead
from prometheus_client.utils import floatToGoString

PREFIX = "twinrank_"
Labels = Mapping[str, str]


class Doubles(MmapedDict):
    """A file of numbers, each also to be had as the memory that it is: a tenth of the cost of a write by its key.

    It appears whole. The library gives a new file its length after its name, and a scrape between the two fails.
    """

    def __init__(self, path: Path) -> None:
        if path.exists():
            super().__init__(str(path))  # type: ignore[no-untyped-call]  # the library has no types here
        else:
            aside = path.with_suffix(".new")
            super().__init__(str(aside))  # type: ignore[no-untyped-call]
            aside.rename(path)

    def place(self, key: str) -> memoryview[float]:
        """Where the number stands; released before the file is closed. It stays right while the file grows: a larger
        mapping is then made beside this one, of the same pages."""
        self.read_value(key)  # type: ignore[no-untyped-call]
        start = self._positions[key]
        return memoryview(self._m)[start : start + 8].cast("d")


class Cell:
    """One number of one series. Only its own process writes it."""

    __slots__ = ("_lock", "_place", "_value")

    def __init__(self, place: memoryview[float], lock: Lock) -> None:
        self._place, self._lock = place, lock
        # A dead worker's counters stay; one that got its number goes on from them.
        self._value: float = place[0]

    def inc(self, amount: float = 1.0) -> None:
        with self._lock:
            self._value += amount
            self._place[0] = self._value

    def set(self, value: float) -> None:
        with self._lock:
            self._value = value
            self._place[0] = value


class Histogram:
    """Observations of one series, counted in buckets; `bounds` are inclusive upper bounds, ascending."""

    __slots__ = ("_bounds", "_buckets", "_edges", "_sum")

    def __init__(self, bounds: Sequence[float], buckets: Sequence[Cell], total: Cell) -> None:
        self._bounds, self._edges = bounds, np.asarray(bounds)
        self._buckets, self._sum = buckets, total

    def bucket(self, value: float) -> Cell:
        """Where a value is counted."""
        return self._buckets[bisect_left(self._bounds, value)]

    def observe(self, value: float) -> None:
        self.bucket(value).inc()
        self._sum.inc(value)

    def observe_each(self, values: Sequence[float]) -> None:
        """Every value of a short list: fewer writes where several fall into one bucket."""
        counts: dict[int, int] = {}
        for value in values:
            bucket = bisect_left(self._bounds, value)
            counts[bucket] = counts.get(bucket, 0) + 1
        for bucket, count in counts.items():
            self._buckets[bucket].inc(count)
        self._sum.inc(sum(values))

    def observe_all(self, values: npt.NDArray[np.floating]) -> None:
        """Every value of an array of any length."""
        counts = np.bincount(np.searchsorted(self._edges, values), minlength=len(self._buckets)).tolist()
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)
        self._sum.inc(float(values.sum(dtype=np.float64)))


class Cells:
    """Makes the series of process `pid` in `folder`."""

    def __init__(self, folder: Path, pid: int) -> None:
        self.folder, self._pid = folder, pid
        self._files: dict[str, Doubles] = {}
        self._places: list[memoryview[float]] = []
        self._lock = Lock()

    def counter(self, name: str, about: str, labels: Labels) -> Cell:
        """`name` without its `_total`."""
        return self._cell("counter", name, f"{name}_total", about, labels)

    def gauge(self, name: str, about: str, labels: Labels, mode: str = "livesum") -> Cell:
        """`mode` says how workers merge: livesum, livemin, livemax; only live ones count."""
        return self._cell(f"gauge_{mode}", name, name, about, labels)

    def histogram(self, name: str, about: str, labels: Labels, bounds: Sequence[float]) -> Histogram:
        edges = [floatToGoString(bound) for bound in (*bounds, float("inf"))]
        buckets = [self._cell("histogram", name, f"{name}_bucket", about, {**labels, "le": edge}) for edge in edges]
        return Histogram(bounds, buckets, self._cell("histogram", name, f"{name}_sum", about, labels))

    def close(self) -> None:
        for place in self._places:
            place.release()
        for file in self._files.values():
            file.close()  # type: ignore[no-untyped-call]
        self._places.clear()
        self._files.clear()

    def _cell(self, kind: str, metric: str, sample: str, about: str, labels: Labels) -> Cell:
        if kind not in self._files:
            self._files[kind] = Doubles(self.folder / f"{kind}_{self._pid}.db")
        names = list(labels)
        key = mmap_key(PREFIX + metric, PREFIX + sample, names, [labels[name] for name in names], about)
        with self._lock:
            place = self._files[kind].place(key)
            self._places.append(place)
            return Cell(place, self._lock)


def forget_worker(folder: Path, pid: int) -> None:
    """A worker that died: its gauges go, its counters and histograms stay."""
    mark_process_dead(pid, str(folder))
