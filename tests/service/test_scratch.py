"""The folder that the processes of a service share."""

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from service.workers.scratch import scratch


@pytest.fixture(name="temp", autouse=True)
def _temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def killed_inside(*, leaving_a_child: bool = False) -> tuple[Path, int]:
    """The folder of a process that was killed, and the pid of a child of it that lives on."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        with scratch() as folder:
            child = os.fork() if leaving_a_child else 1
            if child:
                os.write(writes, f"{folder} {child}".encode())
            time.sleep(60)
        os._exit(0)
    folder, child = os.read(reads, 4096).decode().rsplit(" ", 1)
    os.close(reads), os.close(writes)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return Path(folder), int(child)


def test_it_goes_at_the_end(temp: Path):
    with scratch() as folder:
        assert folder.is_dir()
    assert list(temp.iterdir()) == []


def test_what_a_killed_service_left_goes_when_the_next_starts():
    left, _ = killed_inside()
    assert left.is_dir()
    with scratch():
        assert not left.exists()


def test_what_another_service_uses_stays():
    with scratch() as one, scratch():
        assert one.is_dir()


def test_what_a_worker_still_uses_stays_though_its_supervisor_was_killed():
    left, worker = killed_inside(leaving_a_child=True)
    with scratch():
        assert left.is_dir()
    os.kill(worker, signal.SIGKILL)


def test_a_folder_of_another_kind_stays(temp: Path):
    (temp / "twinrank-metrics-1").mkdir()
    with scratch():
        assert (temp / "twinrank-metrics-1").is_dir()


def test_a_link_is_not_followed(temp: Path, tmp_path_factory: pytest.TempPathFactory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "in-use").touch()
    (temp / "twinrank-link").symlink_to(elsewhere)
    with scratch():
        assert (elsewhere / "in-use").exists()
