"""Ten million rows of forty columns: what memory holds while they are encoded and trained on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = int(os.environ.get("TWINRANK_LARGE_ROWS", 10_000_000))
COLUMNS, LIMIT_MIB = 40, 2048
BLOCK = 500_000


def write_rows(path: Path) -> list[str]:
    """A label, a time, and numbers and categories in turns; returns the names of the last two kinds."""
    random, writer, names = np.random.default_rng(1), None, [f"f{n}" for n in range(COLUMNS - 2)]
    for start in range(0, ROWS, BLOCK):
        rows = min(BLOCK, ROWS - start)
        columns = {
            "clicked": random.integers(0, 2, rows, np.int8),
            "at": 1_700_000_000 + np.arange(start, start + rows),
        }
        for n, name in enumerate(names):
            columns[name] = random.normal(size=rows) if n % 2 else random.integers(0, 1000, rows)
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    return names


def write_config(path: Path, names: list[str]) -> None:
    lines = ["[data]", 'timestamp = "at"', "[train]", "epochs = 1", "[model]", "hidden = [32]"]
    for n, name in enumerate(names):
        kind = "numeric" if n % 2 else "categorical"
        lines += ["[[features]]", f'name = "{name}"', f'kind = "{kind}"', 'side = "context"', "dim = 4"]
    path.write_text("\n".join(lines))


def anonymous_mib(process: int) -> float:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_large_data_are_encoded_and_trained_on_within_two_gigabytes(tmp_path: Path) -> None:
    write_config(tmp_path / "c.toml", write_rows(tmp_path / "rows.parquet"))
    where = ["--config", "c.toml", "--data", "rows.parquet", "--artifacts", "a", "--version", "v1"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "training", "fit", *where]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment)
    most = 0.0
    while process.poll() is None:
        most = max(most, anonymous_mib(process.pid))
        time.sleep(0.1)
    assert process.returncode == 0
    assert most < LIMIT_MIB
    print(f"{ROWS} rows of {COLUMNS} columns: at most {most:.0f} MiB")
