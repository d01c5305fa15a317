"""A full disk: one line that names the folder, nothing published, never the abort that torch's writers end in."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from service.scoring.files import check_room, named
from tests.training.tiny_data import config, fit, visible, write_data
from training.checkpoint import Checkpoints
from training.progress import RUNS, watching


class _Usage(NamedTuple):
    free: int


@pytest.fixture
def _full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(50_000))


@pytest.mark.usefixtures("_full")
def test_a_version_that_does_not_fit_is_an_error_with_its_folder_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        fit(config(train={"epochs": 1}), write_data(tmp_path / "data"), tmp_path / "artifacts")
    assert str(caught.value.filename).startswith(str(tmp_path / "artifacts"))
    assert visible(tmp_path / "artifacts") == []
    assert list((tmp_path / "artifacts").glob(".v1-*")) == []


@pytest.mark.usefixtures("_full")
def test_a_checkpoint_that_does_not_fit_is_an_error_with_its_folder(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "v1", "")
    with pytest.raises(OSError, match="No space left") as caught:
        checkpoints.save({"nested": [{"weights": torch.zeros(4)}]})
    assert str(tmp_path / ".checkpoints" / "v1") == caught.value.filename
    assert checkpoints.newest() is None


def test_what_fits_passes(tmp_path: Path) -> None:
    check_room(tmp_path, 1)


def test_an_error_of_writing_that_names_no_file_is_given_the_folder(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught, named(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == str(tmp_path)


def test_the_thread_that_writes_scalars_says_nothing_beside_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with watching(tmp_path):
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
    assert capsys.readouterr().err == ""


def test_scalars_that_cannot_be_written_name_their_folder(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught, watching(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == str(tmp_path / RUNS)
