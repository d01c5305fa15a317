"""What the preparer process runs: the heavy part of a load, out of the way of those that answer requests."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from service import logs
from service.scoring.files import ArtifactError
from service.workers.resting import run_resting

# prepare(artifact, out, revision) fills the empty folder `out`; ArtifactError where the version will not do.
Prepare = Callable[[Path, Path, int], None]
# Under memory pressure it goes before a worker does.
OUT_OF_MEMORY_SCORE = "500"
HURRIED_NICENESS = 10


def run(
    prepare: Prepare,
    artifact: Path,
    out: Path,
    revision: int,
    reason_file: Path,
    *,
    give_way: bool,
    hurried: bool = False,
) -> int:
    """The exit code; where it is 1, `reason_file` says why in a line. `give_way` while requests are answered, less of
    it, and without rests, where `hurried`."""
    logs.configure()

    def work() -> int:
        if give_way:
            yield_to_workers(hurried=hurried)
        return _prepare(prepare, artifact, out, revision, reason_file)

    return run_resting(work) if give_way and not hurried else work()


def _prepare(prepare: Prepare, artifact: Path, out: Path, revision: int, reason_file: Path) -> int:
    try:
        prepare(artifact, out, revision)
    except Exception as error:  # noqa: BLE001 - whatever it was, the askers are told in one line
        expected = isinstance(error, ArtifactError)
        if not expected:
            logs.event("preparing raised", level=logging.ERROR, version=artifact.name, exc_info=error)
        reason_file.write_text(str(error) if expected else f"{type(error).__name__}: {error}", "utf-8")
        return 1
    return 0


def prepare_version(artifact: Path, out: Path, revision: int) -> None:
    """The service's own work, on one thread."""
    import pyarrow
    import torch

    from service.scoring.prepared import prepare

    pyarrow.set_cpu_count(1)
    torch.set_num_threads(1)
    prepare(artifact, out, revision)


def yield_to_workers(*, hurried: bool = False) -> None:
    """Make this thread and those it will start give way to every other process of the machine; where `hurried` it is
    merely nicer, and comes by a tenth of a busy core.

    Being merely nicer is not enough: whoever wakes to answer then waits for the end of this one's turn. At nice 10 and
    19 alike the 99th percentile beside a load was 1.6 times what it is like this.
    """
    if hurried:
        os.nice(HURRIED_NICENESS)
    else:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OUT_OF_MEMORY_SCORE)
