"""The offline metrics of versions as a Markdown table: python tools/metrics_table.py artifacts/v1 artifacts/v2"""

import json
import sys
from pathlib import Path

COLUMNS = ("auc", "logloss", "gauc", "ne", "calibration", "rows", "positives")


def cell(value: float | int | None) -> str:
    return "–" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


def table(folders: list[Path]) -> str:
    lines = ["| version | part | " + " | ".join(COLUMNS) + " |", "|---" * (2 + len(COLUMNS)) + "|"]
    for folder in folders:
        metrics = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["metrics"]
        for part in ("valid", "test"):
            row = [cell(metrics[part].get(name)) for name in COLUMNS]
            lines.append(f"| {folder.name} | {part} | " + " | ".join(row) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table([Path(name) for name in sys.argv[1:]]))
