"""The open loop as its callers see it: fire.c, a process that runs beside them and gives its fates at the end."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmark.closed import LoadError
from benchmark.schedule import Fates, Phase, arrivals
from benchmark.servers import ServerError, stop

SOURCE = Path(__file__).parent / "fire.c"
PATIENCE = 15.0  # seconds that an answer is waited for after the last arrival
FATE = np.dtype([("seen", "f8"), ("sent", "f8"), ("done", "f8"), ("status", "i8")])


def compile_client(folder: Path) -> Path:
    """The client's program, made in `folder`; LoadError where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LoadError("no C compiler for the open loop's client: apt-get install gcc")
    program = folder / "fire"
    command = [compiler, "-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-o", str(program), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LoadError(f"{SOURCE.name} does not compile: {' '.join(done.stderr.split())[:300]}")
    return program


class Arriving:
    """Requests of one kind that arrive at an address, from the start of this object on."""

    def __init__(
        self,
        client: Path,
        address: tuple[str, int],
        bodies: Sequence[Path],
        phases: Sequence[Phase],
        folder: Path,
        *,
        connections: int = 64,
        poisson: bool = True,
        seed: int = 1,
    ) -> None:
        self._due, self._out = arrivals(phases, poisson=poisson, seed=seed), folder / "fates"
        self._due.tofile(folder / "due")
        requests = [folder / f"request-{number}" for number in range(len(bodies))]
        for request, body in zip(requests, bodies, strict=True):
            request.write_bytes(_render(address, body.read_bytes()))
        how = [address[0], str(address[1]), str(connections), str(PATIENCE), str(folder / "due"), str(self._out)]
        self._process = subprocess.Popen([client, *how, *requests], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None  # it is a pipe
        if self._process.stdout.readline().strip() != "started":
            stop(self._process)
            raise ServerError("the open-loop client did not start; its reason stands above")

    def fates(self) -> Fates:
        """Wait until all that were to arrive are done with."""
        code = self._process.wait()
        stop(self._process)
        if code:
            raise ServerError("the open-loop client failed; its reason stands above")
        found = np.fromfile(self._out, FATE)
        return Fates(self._due[: len(found)], *(found[name] for name in ("seen", "sent", "done", "status")))

    def end(self) -> Fates:
        """Let nothing more arrive, and wait for what is under way."""
        self._process.send_signal(signal.SIGTERM)
        return self.fates()

    def kill(self) -> None:
        """For a caller that failed: leave no client behind."""
        stop(self._process)


def _render(address: tuple[str, int], body: bytes) -> bytes:
    host = f"{address[0]}:{address[1]}"
    head = f"POST /predict HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body
