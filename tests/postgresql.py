"""A real PostgreSQL for tests: a cluster of its own in a temporary folder, on a Unix socket, gone at the end."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psutil

PLACES = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin")
# The server is not run by root: as whoever calls, or this user.
SERVANTS = ("postgres", "nobody")


def binaries() -> Path | None:
    """The folder with the newest server's programs, None where there is none."""
    found = [path for place in PLACES for path in Path("/").glob(place) if (path / "initdb").exists()]
    if found:
        return max(found, key=lambda path: [int(number) for number in re.findall(r"\d+", str(path))])
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


class Cluster:
    """A running server; `stop` and `start` are as rough as an outage."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._folder, self._numbers = programs, folder, count(1)
        self._user = _servant()

    def make(self) -> None:
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._run("initdb", "--auth=trust", "--username=test", "--no-sync", "--encoding=UTF8", "--locale=C", "data")
        with (self._folder / "data" / "postgresql.conf").open("a") as config:
            config.write(f"listen_addresses = ''\nunix_socket_directories = '{self._folder}'\nmax_connections = 60\n")
            config.write("shared_buffers = 16MB\n")
        self.start()

    def start(self) -> None:
        self._run("pg_ctl", "--pgdata=data", "--log=log", "--wait", "--timeout=60", "start")

    def stop(self) -> None:
        """End the server and every connection at once, as a crash does."""
        self._run("pg_ctl", "--pgdata=data", "--wait", "--mode=immediate", "stop")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Inside, the server takes connections and bytes, and says nothing."""
        first = psutil.Process(int((self._folder / "data" / "postmaster.pid").read_text().split()[0]))
        processes = [first, *first.children(recursive=True)]
        for one in processes:
            one.suspend()
        try:
            yield
        finally:
            for one in processes:
                one.resume()

    def state(self) -> str:
        """The URL of a new, empty schema: as good as a database of its own, and made in no time."""
        name = f"state{next(self._numbers)}"
        self.sql(f"CREATE SCHEMA {name}")
        return f"postgresql://test@/postgres?host={self._folder}&options=-csearch_path%3D{name}"

    def sql(self, statement: str) -> list[str]:
        """The rows of a statement, as psql writes them unaligned."""
        where = [f"--host={self._folder}", "--username=test", "--dbname=postgres"]
        return self._run("psql", *where, "--no-psqlrc", "--tuples-only", "--no-align", "-c", statement).splitlines()

    def _run(self, program: str, *arguments: str) -> str:
        # Output goes to a file: pg_ctl's server would hold a pipe open for as long as it lives.
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                [self._programs / program, *arguments],
                cwd=self._folder,
                user=self._user,
                stdout=said,
                stderr=said,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"},
                timeout=120,
                check=False,
            )
            said.seek(0)
            text = said.read()
        assert done.returncode == 0, f"{program}: {text}"
        return text


@contextmanager
def running(programs: Path) -> Iterator[Cluster]:
    """A new cluster, stopped and removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="twinrank-pg-"))  # short: a socket's path has 107 bytes at most
    try:
        cluster = Cluster(programs, folder)
        cluster.make()
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _servant() -> str | None:
    if os.geteuid() != 0:
        return None
    import pwd

    known = {one.pw_name for one in pwd.getpwall()}
    return next(name for name in SERVANTS if name in known)
