"""Processes of one machine that share their tables: as one process, alike to the last bit, and never left waiting."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.test_checkpoint import StopsAfter, same
from tests.training.test_distributed import MADE, epochs, free_port, join, together, weights
from tests.training.tiny_data import clicks, config, fit, write_data
from training import train
from training.distributed import joined
from training.errors import FitError
from training.loop import Loop
from training.rows import native
from training.segment import Segment, bytes_of
from training.stopping import Terminated
from training.together import Together

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.skipif(native is None or not hasattr(os, "memfd_create"), reason="no native rows, or not Linux"),
]


def fit_of(rank: int, size: int, port: int, data: Path, folder: Path, made: dict[str, Any], shared: bool) -> None:
    """A fit whose process writes down what it trained with, and its weights after the last epoch."""
    join(rank, size, port)
    if not shared:
        del os.memfd_create  # as on a system that has none
    used: list[str] = []
    given = Loop._batches

    def batches(self: Loop, learn: Any, exchange: Any) -> None:
        used.append(type(exchange).__name__)
        given(self, learn, exchange)
        state = {name: tensor.clone() for name, tensor in self.run.model.state_dict().items()}
        torch.save({"used": used, "state": state}, folder / f"{rank}.pt")

    Loop._batches = batches  # type: ignore[method-assign]  # looks on, changes nothing
    with joined("cpu") as group:
        train.main(config(**made), data, folder / "a", "v1", device="cpu", command="", group=group)


def ends(data: Path, folder: Path, made: dict[str, Any], *, shared: bool) -> list[dict[str, Any]]:
    folder.mkdir()
    together(fit_of, 2, data, folder, made, shared)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize(
    ("wide", "deep", "shared"), [("adagrad", "adam", True), ("ftrl", "adagrad", True), ("ftrl", "adagrad", False)]
)
def test_all_processes_end_with_the_same_bits(tmp_path: Path, wide: str, deep: str, shared: bool) -> None:
    given = {**MADE["train"], "wide_optimizer": wide, "deep_optimizer": deep, "accumulate": 2}
    made = {**MADE, "train": given}
    data = write_data(tmp_path / "data", clicks(rows=641))  # the last batch has one row, and one process none of it
    one, other = ends(data, tmp_path / "both", made, shared=shared)
    assert set(one["used"]) == set(other["used"]) == {"Together" if shared else "Exchange"}
    assert all(torch.equal(one["state"][name], other["state"][name]) for name in one["state"])
    alone = fit(config(**made), data, tmp_path / "alone")
    both = tmp_path / "both" / "a" / "v1"
    for mine, other_epoch in zip(epochs(both), epochs(alone), strict=True):
        assert mine["loss"] == pytest.approx(other_epoch["loss"], abs=1e-5)
    found = weights(both)
    for name, wanted in weights(alone).items():
        assert torch.allclose(found[name], wanted, atol=1e-3), name


def stop_and_go_on(rank: int, size: int, port: int, data: Path, folder: Path) -> None:
    join(rank, size, port)
    made = config(**{**MADE, "model": {"dropout": 0.2}})
    with joined("cpu") as group:
        start = partial(train.main, made, data, version="v1", device="cpu", command="", group=group)
        start(artifacts=folder / "unbroken")
        with pytest.raises(Terminated):
            start(artifacts=folder / "broken", stopping=StopsAfter(11))
        start(artifacts=folder / "broken", resume=True)


def test_a_stopped_fit_of_two_processes_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    together(stop_and_go_on, 2, write_data(tmp_path / "data"), tmp_path)
    assert same(weights(tmp_path / "broken" / "v1"), weights(tmp_path / "unbroken" / "v1"))


def leave(rank: int, size: int, port: int, folder: Path) -> None:
    """The last process is killed where the others wait for it."""
    join(rank, size, port)
    with joined("cpu") as group:
        home = Segment.opened(group, 0, bytes_of([((size, 8), torch.int64)]))
        assert home is not None
        home.hold(rank)
        group.gather_objects(None)
        waiting = Together.__new__(Together)
        waiting._group, waiting._home, waiting._meetings = group, home, 0
        (waiting._numbers,) = home.tensors([((size, 8), torch.int64)])
        waiting._meet()
        if rank == size - 1:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(FitError, match="process 2 of 2 is gone"):
            waiting._meet()
        (folder / "told").touch()
        os._exit(0)  # gloo would wait for the other


def test_a_process_whose_fellow_was_killed_says_so(tmp_path: Path) -> None:
    spawn, port = torch.multiprocessing.get_context("spawn"), free_port()
    processes = [spawn.Process(target=leave, args=(rank, 2, port, tmp_path)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert processes[1].exitcode == -signal.SIGKILL
    assert (tmp_path / "told").exists()


def grow(rank: int, size: int, port: int, folder: Path) -> None:
    join(rank, size, port)
    with joined("cpu") as group:
        segment = Segment.opened(group, 1, 0)
        assert segment is not None
        spec = [((rank + 3, 5), torch.float32), ((100_000,), torch.int64)]
        if rank == 1:
            segment.grow(bytes_of(spec))
            segment.tensors(spec)[1][-1] = 7
        group.gather_objects(None)
        segment.grow(bytes_of([((4, 5), torch.float32), ((100_000,), torch.int64)]))
        assert segment.tensors([((4, 5), torch.float32), ((100_000,), torch.int64)])[1][-1] == 7
        assert os.fstat(segment._file).st_mode & 0o777 == 0o600
        (folder / str(rank)).touch()


def test_memory_that_its_owner_made_larger_is_found_by_all(tmp_path: Path) -> None:
    together(grow, 2, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}
