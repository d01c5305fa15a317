"""The work that is measured: 26 categorical features over 1,000,000 ids, 13 numerics, 50,000 items, one model on it.

Half of the features are the user's and the context's (C1-C13, I1-I7), half the items' (C14-C26, I8-I13). Ids and
items are drawn uniformly: no cache helps. The versions are trained and published by the command that users run.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = 1  # raise it where the data or the bodies change: a kept folder is made anew
IDS, ITEMS, ROWS, OTHER_ROWS = 1_000_000, 50_000, 300_000, 2_000
TABLE = IDS // 26
SIDES = {"user": (range(1, 11), range(1, 7)), "context": (range(11, 14), [7]), "item": (range(14, 27), range(8, 14))}
CATEGORIES = {f"C{n}": TABLE + (IDS - 26 * TABLE if n == 26 else 0) for n in range(1, 27)}
Json = dict[str, Any]


class WorkError(Exception):
    """The work could not be made: one plain line."""


def names(side: str) -> tuple[list[str], list[str]]:
    """(categorical, numeric) features of a side."""
    categorical, numeric = SIDES[side]
    return [f"C{n}" for n in categorical], [f"I{n}" for n in numeric]


@dataclass(frozen=True, slots=True)
class Work:
    """A folder with the data, the config, the request bodies and the versions; kept between runs."""

    folder: Path

    @property
    def bodies(self) -> Path:
        return self.folder / "bodies"

    @property
    def artifacts(self) -> Path:
        """The versions of this code: what another trainer or engine published is not measured as if it were ours."""
        return self.folder / f"artifacts-{_sources()}"

    def publish(self, version: str) -> Path:
        """The folder of `version`, trained where it is not there yet (a minute or two); seeds differ by name."""
        path = self.artifacts / version
        with _locked(self.folder):
            if not path.is_dir():
                command = [sys.executable, "-m", "training", "fit", "--config", str(self.folder / "work.toml")]
                command += ["--data", str(self.folder / "data"), "--artifacts", str(self.artifacts)]
                command += ["--version", version, "--seed", str(sum(version.encode())), "--device", "cpu"]
                print(f"training {version}", file=sys.stderr, flush=True)
                done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                if done.returncode:
                    raise WorkError(f"training {version}: {done.stderr.strip().splitlines()[-1]}")
        return path


def prepare(folder: Path) -> Work:
    """The work in `folder`, made where it is not there; WorkError where the folder holds something else."""
    from benchmark.payloads import write_bodies

    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        mark, made = folder / "work.json", {"generator": GENERATOR}
        if not mark.is_file() and any(one.name != ".lock" for one in folder.iterdir()):
            raise WorkError(f"{folder} is not empty and no work folder of the benchmark; name another")
        if not mark.is_file() or json.loads(mark.read_text()) != made:
            print(f"making the data in {folder}", file=sys.stderr, flush=True)
            write_data(folder / "data", ROWS)
            (folder / "work.toml").write_text(config(), encoding="utf-8")
            write_bodies(folder / "bodies")
            mark.write_text(json.dumps(made))
    return Work(folder)


def write_data(folder: Path, rows: int) -> None:
    """Parquet files train/, valid/, test/ and items.parquet; every id and every item occurs in train/."""
    # Not imported where only a service is measured: its libraries' pages would be shared with this process.
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(1)
    categorical, numeric = names("item")
    items = {"item_id": np.arange(ITEMS)} | {name: _ids(draw, CATEGORIES[name], ITEMS) for name in categorical}
    items |= {name: _numbers(draw, ITEMS) for name in numeric}
    for part, count in (("train", rows), ("valid", OTHER_ROWS), ("test", OTHER_ROWS)):
        (folder / part).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(_events(draw, items, count)), folder / part / "events.parquet")
    pq.write_table(pa.table(items), folder / "items.parquet")


def _events(draw: np.random.Generator, items: dict[str, Any], rows: int) -> dict[str, Any]:
    events = {"user_id": draw.integers(0, IDS, rows), "item_id": _ids(draw, ITEMS, rows)}
    for side in ("user", "context"):
        categorical, numeric = names(side)
        events |= {name: _ids(draw, CATEGORIES[name], rows) for name in categorical}
        events |= {name: _numbers(draw, rows) for name in numeric}
    liking = events["I1"] + items["I8"][events["item_id"]] - 1.5
    return {**events, "clicked": (draw.random(rows) < 1 / (1 + np.exp(-liking))).astype(np.int8)}


def _ids(draw: np.random.Generator, size: int, rows: int) -> np.ndarray:
    """Uniform ids 0..size-1, each of them at least once where there are rows enough."""
    once = np.arange(min(size, rows))
    return draw.permutation(np.concatenate([once, draw.integers(0, size, rows - len(once))]))


def _numbers(draw: np.random.Generator, rows: int) -> np.ndarray:
    return np.round(draw.normal(size=rows), 4)


def config() -> str:
    """The training config of the work."""
    lines = ["[data]", 'label = "clicked"', 'unit = "user_id"', 'item = "item_id"', 'items = "items.parquet"']
    lines += ["[split]", 'kind = "files"']
    for side in SIDES:
        for kind, of_kind in zip(("categorical", "numeric"), names(side), strict=True):
            special = "dim = 16\nmin_count = 1" if kind == "categorical" else 'scaler = "standard"'
            for name in of_kind:
                lines += ["[[features]]", f'name = "{name}"', f'kind = "{kind}"', f'side = "{side}"', special]
                lines.append("wide = true")
    return "\n".join([*lines, "[model]", "hidden = [256, 128, 64]", "[train]", "batch_size = 4096", "epochs = 1", ""])


def _sources() -> str:
    """A short hash of the code that makes and opens a version."""
    digest = hashlib.sha256()
    for file in sorted([*(ROOT / "training").rglob("*.py"), *(ROOT / "service" / "scoring").rglob("*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:8]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
