"""Measures how fast training is on the machine at hand, beside floors measured in the same run.

    python loadtests/bench_training.py --work bench-training --movielens FOLDER --out results.json --markdown results.md

README.md tells what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from training_works import WORKS, make, ten_columns

HERE = Path(__file__).resolve().parent
ROWS = (*WORKS, "encode", "two_A", "two_B")
ENOUGH = {
    "A": (0.8, 0.95),
    "B": (0.7, 0.95),
    "C": (0.8, 0.8),
    "encode": (500_000, 500_000),
    "two_A": (1.6, 1.6),
    "two_B": (1.6, 1.6),
}
Json = dict[str, Any]


def main() -> int:
    options = _options()
    found: dict[str, list[Json]] = {name: [] for name in options.only}
    measures: dict[str, Callable[[argparse.Namespace], Json]] = {
        "encode": encode,
        "two_A": partial(two, "A"),
        "two_B": partial(two, "B"),
    }
    for n in range(options.repeats):
        for name in options.only:
            print(f"{time.strftime('%H:%M:%S')} {name}, {n + 1} of {options.repeats}", file=sys.stderr)
            measure = measures.get(name)
            found[name].append(measure(options) if measure else turns(name, options))
            print(json.dumps(found[name][-1]), file=sys.stderr)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    rows = {name: figures(name, runs, found) for name, runs in found.items()}
    report = {"machine": machine, "torch": torch.__version__, "python": platform.python_version(), "rows": rows}
    if options.out:
        options.out.write_text(json.dumps({**report, "runs": found}, indent=1), encoding="utf-8")
    table = markdown(report)
    if options.markdown:
        options.markdown.write_text(table, encoding="utf-8")
    print(table)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("bench-training"), help="folder of data and caches (600 MB)")
    parser.add_argument("--movielens", type=Path, help="MovieLens-1M as its owners give it; without it no work A")
    parser.add_argument("--only", nargs="*", choices=ROWS, help="some of the rows")
    parser.add_argument("--steps", type=int, default=60, help="steps measured, after 10 of warm-up")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="of a fit; 0: torch's own choice")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    there = (options.work / "data" / "A" / "config.toml").exists()
    options.only = options.only or [name for name in ROWS if not name.endswith("A") or options.movielens or there]
    return options


def turns(name: str, options: argparse.Namespace) -> Json:
    """Steps of a fit and of the floor, in turns."""
    folder = make(WORKS[name], options.work, options.movielens)
    numbers = [str(WORKS[name].width), str(options.steps)]
    return program("turns", folder, options.work / "artifacts" / name, *numbers, threads=options.threads)


def encode(options: argparse.Namespace) -> Json:
    """Ten columns, into an empty cache."""
    folder, cache = ten_columns(options.work), options.work / "encode-cache"
    shutil.rmtree(cache, ignore_errors=True)
    return program("encode", folder, cache, threads=1)


def two(name: str, options: argparse.Namespace) -> Json:
    """An epoch of a work by one process of one thread, then by two of them."""
    folder = make(WORKS[name], options.work, options.movielens)
    found: Json = {}
    for count in (1, 2):
        artifacts = options.work / "artifacts" / f"{name}-{count}"
        shutil.rmtree(artifacts, ignore_errors=True)
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)] if count > 1 else []
        fit = ["-m", "training", "fit", "--config", str(folder / "config.toml"), "--data", str(folder)]
        where = [
            "--artifacts",
            str(artifacts),
            "--version",
            "v1",
            "--cache",
            str(options.work / "artifacts" / f"cache-{name}"),
        ]
        _run([*launch, *fit, *where, "--device", "cpu"], 1)
        epoch = json.loads((artifacts / "v1" / "manifest.json").read_text())["epochs"][0]
        found |= {f"rows_s_{count}": epoch["rows_per_second"], f"loss_{count}": epoch["loss"]}
    return found | {"ratio": found["rows_s_2"] / found["rows_s_1"]}


def program(*arguments: object, threads: int) -> Json:
    """What one run of training_turns.py found."""
    text = _run([str(HERE / "training_turns.py"), *map(str, arguments)], threads)
    report: Json = json.loads(text.splitlines()[-1])
    return report


def _run(command: list[str], threads: int) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)} if threads else dict(os.environ)
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=HERE.parent, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"bench_training: {' '.join(command)}: exit {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def figures(name: str, runs: list[Json], found: dict[str, list[Json]]) -> Json:
    """Medians, and what they are judged by."""
    numbers = [key for key, value in runs[0].items() if isinstance(value, int | float)]
    medians: Json = {key: statistics.median(run[key] for run in runs) for key in numbers}
    judged = medians["rows_s"] if name == "encode" else medians["ratio"]
    if name == "C":
        if "B" not in found:
            return medians
        # Each beside its own floor: the machine's drift between the two works drops out.
        judged = medians["of_B"] = medians["ratio"] / statistics.median(run["ratio"] for run in found["B"])
    must, aim = ENOUGH[name]
    return medians | {"verdict": "aim" if judged >= aim else "must" if judged >= must else "short"}


def markdown(report: Json) -> str:
    lines = ["| work | rows/s | floor | ratio | of medians | of CPU | verdict |", "|---|---|---|---|---|---|---|"]
    for name, row in report["rows"].items():
        verdict = row.get("verdict", "")
        if name in WORKS:
            ratios = [f"{row[key]:.2f}" for key in ("ratio", "ratio_of_medians", "ratio_of_cpu")]
            of = f", {row['of_B']:.2f} of B" if "of_B" in row else ""
            shown = [f"{row['rows_s']:,.0f}", f"{row['floor_rows_s']:,.0f}", *ratios, verdict + of]
        elif name == "encode":
            shown = [f"{row['rows_s']:,.0f}", "", "", "", "", verdict]
        else:
            shown = [f"{row['rows_s_2']:,.0f}", f"{row['rows_s_1']:,.0f}", f"{row['ratio']:.2f}", "", "", verdict]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    where = f"{report['machine']['processor']}, {report['machine']['cores']} cores, torch {report['torch']}"
    return "\n".join([*lines, "", where, ""])


if __name__ == "__main__":
    sys.exit(main())
