"""What the supervisor does before it forks: everything a worker needs is imported once, for all of them.

Imports alone: no tensor is made and no thread starts, so that a fork copies a quiet process.
"""

from __future__ import annotations

import gc
import os

from service.workers import memory


def limit_threads(threads: int) -> None:
    """Set what libraries read as they are loaded; to be called before anything imports numpy or torch."""
    os.environ.update(
        OMP_NUM_THREADS=str(threads),
        MKL_NUM_THREADS=str(threads),
        OMP_WAIT_POLICY="PASSIVE",  # waiting torch threads else spin
        OPENBLAS_NUM_THREADS="1",  # numpy's, which starts its threads on import; scoring leaves nothing to them
    )
    # One allocator for all, so that what pyarrow frees is given back too; another would start a thread on import.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")


def import_all() -> None:
    """Import what a worker imports sooner or later, and put it out of the garbage collector's sight.

    A collection writes into every object it visits, which would give each worker a copy of its own.
    """
    gc.disable()
    import pyarrow.dataset  # noqa: F401 - comes with the first Parquet file that is read
    import uvicorn.lifespan.on
    import uvicorn.loops.uvloop  # noqa: F401 - by name in a server's configuration

    import service.workers.worker  # noqa: F401 - the rest

    gc.collect()
    gc.freeze()
    memory.let_go_of_code()
