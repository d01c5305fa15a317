"""Regenerate the lock files from pyproject.toml: what pip would install now, pinned.

    python tools/lock.py          (make lock)

One resolution covers everything; the images' shorter files are resolved under its pins, so no two files disagree.
Nothing is installed. There are no hashes: the same torch release is published as several builds (CPU, CUDA), and the
pin is meant to fit each of them. What only a CUDA build of torch needs is left to that build, which pins it exactly.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch==2.13.0"
FILES = {
    "requirements.lock": ("serve", "train", "tune", "notebooks", "load", "dev"),
    "requirements-serve.lock": ("serve",),
    "requirements-train.lock": ("train",),
}
OF_A_CUDA_BUILD = re.compile(r"(nvidia-|cuda-|triton$)")


def requirements(extras: tuple[str, ...]) -> list[str]:
    """The ranges of pyproject.toml, with what builds the project: no build needs a second, unpinned environment."""
    file = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = file["project"]["optional-dependencies"]
    ranges = [*file["build-system"]["requires"], *file["project"]["dependencies"]]
    return ranges + [line for name in extras for line in groups[name]]


def resolve(wanted: list[str], pins: list[str]) -> list[str]:
    """The pins (name==version, sorted) that pip would install for `wanted` under `pins`."""
    with tempfile.TemporaryDirectory() as folder:
        constraints, report = Path(folder, "constraints.txt"), Path(folder, "report.json")
        constraints.write_text("\n".join(pins), encoding="utf-8")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        subprocess.run([*command, "--constraint", constraints, "--report", report, *wanted], check=True)
        found = [item["metadata"] for item in json.loads(report.read_text(encoding="utf-8"))["install"]]
    names = {re.sub(r"[-_.]+", "-", item["name"]).lower(): item["version"].partition("+")[0] for item in found}
    return [f"{name}=={names[name]}" for name in sorted(names) if not OF_A_CUDA_BUILD.match(name)]


def main() -> None:
    pins = [TORCH]
    for name, extras in FILES.items():
        lines = resolve(requirements(extras), pins)
        header = f"# {', '.join(extras)}: made by `make lock` from pyproject.toml; do not edit\n"
        (ROOT / name).write_text(header + "\n".join(lines) + "\n", encoding="utf-8")
        print(f"{name}: {len(lines)} pins")
        if len(pins) == 1:
            pins = lines


if __name__ == "__main__":
    main()
