"""The open loop as its callers see it: a client process that runs beside them and gives its fates at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmark.schedule import Fates, Phase
from benchmark.servers import LOADTESTS, Server, ServerError, stop


class Arriving:
    """Requests of one kind that arrive at a server, from the start of this object on."""

    def __init__(
        self,
        server: Server,
        files: Sequence[Path],
        phases: Sequence[Phase],
        folder: Path,
        *,
        connections: int = 64,
        poisson: bool = True,
        seed: int = 1,
    ) -> None:
        self._out, spec = folder / "fates.npz", folder / "arrivals.json"
        host, port = server.address
        spec.write_text(
            json.dumps(
                {
                    "host": host,
                    "port": port,
                    "files": [str(file) for file in files],
                    "phases": list(phases),
                    "poisson": poisson,
                    "seed": seed,
                    "connections": connections,
                    "out": str(self._out),
                }
            )
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmark.openloop", str(spec)],
            env={**os.environ, "PYTHONPATH": str(LOADTESTS)},
            stdout=subprocess.PIPE,
            text=True,
        )
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
        with np.load(self._out) as arrays:
            return Fates(arrays["due"], arrays["seen"], arrays["sent"], arrays["done"], arrays["status"])

    def end(self) -> Fates:
        """Let nothing more arrive, and wait for what is under way."""
        self._process.send_signal(signal.SIGTERM)
        return self.fates()

    def kill(self) -> None:
        """For a caller that failed: leave no client behind."""
        stop(self._process)
