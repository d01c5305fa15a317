"""A supervisor whose workers do as a test says, and whose preparer does as the version's file says.

As a module it is that supervisor; `puppets` starts it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from service.scoring.files import ArtifactError
from service.workers.preparing import PrepareError, Preparing

ROOT = Path(__file__).resolve().parents[2]


class Puppets:
    """The test's side: `versions/<name>` says what preparing it does, `runs` has a line for each time."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder, self.process = folder, process
        self._threads = ThreadPoolExecutor(8)

    def version(self, name: str, what: str) -> None:
        (self.folder / "versions" / name).write_text(what)

    def let_go(self, name: str) -> None:
        """End the wait of a version that waits."""
        (self.folder / "versions" / f"{name}.go").touch()

    def runs(self) -> list[str]:
        return (self.folder / "runs").read_text().split() if (self.folder / "runs").exists() else []

    def prepared(self) -> list[Path]:
        """What lies in the service's private folder."""
        return sorted(self.folder.glob("tmp/twinrank-*/prepared/*"))

    def ask(self, seat: int, version: str) -> Any:
        """A future of the folder or of ("error", reason)."""
        return self._threads.submit(self._call, seat, "ask", version)

    def release(self, seat: int, version: str) -> None:
        self._call(seat, "release", version)

    def pid(self, seat: int) -> int:
        return int(self._call(seat, "pid", ""))

    def _call(self, seat: int, verb: str, version: str) -> Any:
        try:
            with self._connect(str(self.folder / f"seat-{seat}")) as line:
                line.send((verb, version))
                return line.recv()
        except (EOFError, ConnectionError):
            return "died"

    def _connect(self, address: str) -> Connection:
        """Once the worker listens: its address is there a moment before that."""
        ends = time.monotonic() + 40
        while True:
            try:
                return Client(address)
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > ends:
                    raise
                time.sleep(0.01)

    def until(self, condition: Any, seconds: float = 40) -> None:
        ends = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < ends, "it never came to be"
            time.sleep(0.01)


@contextmanager
def puppets(folder: Path) -> Iterator[Puppets]:
    """Two workers."""
    for name in ("versions", "tmp"):
        (folder / name).mkdir()
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    process = subprocess.Popen([sys.executable, "-m", __spec__.name, str(folder)], cwd=ROOT, env=environment)
    try:
        yield Puppets(folder, process)
    finally:
        process.terminate()
        process.wait(20)


def prepare(artifact: Path, out: Path, revision: int) -> None:
    """What the preparer runs."""
    with (artifact.parent.parent / "runs").open("a") as runs:
        runs.write(f"{artifact.name}\n")
    what = artifact.read_text()
    if what == "wait":
        (out / "pid").write_text(str(os.getpid()))
        while not artifact.with_suffix(".go").exists():
            time.sleep(0.01)
    elif what == "refuse":
        raise ArtifactError("model.pt: the file is missing")
    elif what == "raise":
        raise ZeroDivisionError("division by zero")
    elif what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    (out / "halves").write_text(f"{artifact.name} {revision}")


def work(settings: Any, place: Any) -> int:
    """What a worker runs: each call in a thread of its own."""
    preparing = Preparing(place.supervisor)
    address = settings.artifacts.parent / f"seat-{place.seat}"
    address.unlink(missing_ok=True)
    with Listener(str(address)) as listener:
        while True:
            threading.Thread(target=answer, args=(preparing, listener.accept()), daemon=True).start()


def answer(preparing: Preparing, line: Connection) -> None:
    verb, version = line.recv()
    try:
        if verb == "ask":
            line.send(preparing.ask(version, 7))
        elif verb == "release":
            line.send(preparing.release(version, 7))
        else:
            line.send(os.getpid())
    except PrepareError as error:
        line.send(("error", str(error)))


def main(folder: Path) -> int:
    from service.workers.preload import limit_threads

    limit_threads(1)
    from service import logs
    from service.config import Settings
    from service.state import StateStore
    from service.workers.listening import bind
    from service.workers.supervisor import Supervisor

    logs.configure()
    settings = Settings(artifacts=folder / "versions", state=f"sqlite:///{folder}/state.db", port=0, workers=2)
    private = tempfile.TemporaryDirectory(prefix="twinrank-")
    with bind(settings) as listener, StateStore.open(settings.state) as store, private:
        folder = Path(private.name)
        return Supervisor(settings, listener, store, folder, work=work, prepare=prepare, load=lambda: None).run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
