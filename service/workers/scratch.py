"""The folder for what the processes of one service share: it goes with the last of them, however they ended."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from service import logs

PREFIX, LOCK = "twinrank-", "in-use"


@contextmanager
def scratch() -> Iterator[Path]:
    """A fresh folder, removed at the end. Whoever is forked inside holds it too: the lock is not one process's.

    A service that was killed could not remove its own; the next one on this machine does.
    """
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    aside = folder / f"{LOCK}.new"
    with aside.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        aside.rename(folder / LOCK)  # under its name it is locked: nobody finds it without
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """Remove the folders of this user that nobody holds any more."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError):  # it is held, or another removes it
            if lock.parent.is_symlink() or lock.parent.stat().st_uid != os.getuid():
                continue
            with lock.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            logs.event("folder of a killed service removed", folder=str(lock.parent))
