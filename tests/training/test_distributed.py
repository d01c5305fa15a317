"""Processes that train together: the gradients, losses, scores and weights of one that trains alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch.nn.functional import binary_cross_entropy_with_logits

from service.scoring.files import MODULE
from tests.training.tiny_data import clicks, config, fit, tables, write_data
from training import metrics, train
from training.batches import Batch
from training.data import read_dataset
from training.distributed import Exchange, Group, joined
from training.encoding import MappedRows, encode_parts, fit_encoder
from training.loop import scores
from training.model import WideDeep
from training.optimizers import build_optimizers
from training.rows import native
from training.shuffle import Shuffle
from training.together import Together

# Reading the module's weights; what is deprecated is torch's own reader, named in service/scoring.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

shares_tables = native is not None and hasattr(os, "memfd_create")
needs_shared_tables = pytest.mark.skipif(not shares_tables, reason="no native rows, or not Linux")
NONE = ([0.0] * 5, [0.0])  # no value becomes unknown
MADE: dict[str, Any] = {"train": {"batch_size": 64, "epochs": 2, "patience": 4}, "model": {"dropout": 0.0}}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def join(rank: int, size: int, port: int) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def together(work: Any, size: int, *arguments: Any) -> None:
    torch.multiprocessing.spawn(work, (size, free_port(), *arguments), nprocs=size)


def fit_one(rank: int, size: int, port: int, data: Path, artifacts: Path) -> None:
    join(rank, size, port)
    with joined("cpu") as group:
        train.main(config(**MADE), data, artifacts, "v1", device="cpu", command="", group=group)


def weights(version: Path) -> dict[str, torch.Tensor]:
    return dict(torch.jit.load(version / MODULE).state_dict())


def epochs(version: Path) -> list[Any]:
    found: list[Any] = json.loads((version / "manifest.json").read_text())["epochs"]
    return found


@pytest.mark.parametrize("rows", [600, 641])  # 641: the last batch has one row, and one process none of it
def test_two_processes_come_to_the_weights_and_metrics_of_one(tmp_path: Path, rows: int) -> None:
    data = write_data(tmp_path / "data", clicks(rows=rows))
    alone = fit(config(**MADE), data, tmp_path / "alone")
    together(fit_one, 2, data, tmp_path / "both")
    both = tmp_path / "both" / "v1"
    for one, other in zip(epochs(both), epochs(alone), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-5)
        assert one["valid"]["auc"] == pytest.approx(other["valid"]["auc"], abs=1e-3)
    found = weights(both)
    for name, wanted in weights(alone).items():
        assert torch.allclose(found[name], wanted, atol=1e-4), name


Gradients = dict[str, torch.Tensor]


def by_exchange(model: WideDeep, batch: Batch, size: int, group: Group) -> tuple[float, Gradients]:
    loss = binary_cross_entropy_with_logits(model.logits(*batch.inputs), batch.labels, reduction="sum") / size
    loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
    Exchange(group, model.parameters()).add(0.0)
    return float(loss), {name: one.grad.to_dense() for name, one in model.named_parameters() if one.grad is not None}


def by_shared_tables(model: WideDeep, batch: Batch, size: int, group: Group) -> tuple[float, Gradients]:
    """A table's gradients are of each process's own columns, and their sum is the whole."""
    learn = Together.joined(model, size, batch, group, build_optimizers(model, config(**MADE).train))
    assert learn is not None
    loss = float(learn(batch)) / size
    learn.add(0.0)
    grads = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    found = {
        name: torch.stack(group.gather_objects(grad.to_dense())).sum(0) if grad.is_sparse else grad
        for name, grad in grads.items()
    }
    learn.done()
    learn.close()
    return loss, found


BATCH_SIZES = 64, 1024  # 1024: all rows, an odd number of them


def first_steps(rank: int, size: int, port: int, data: Path, folder: Path, way: str) -> None:
    """Loss, gradients and gathered metrics of one model, the same in every process, before any step: with each size of
    a batch, as processes take longer to start than to learn."""
    join(rank, size, port)
    made = config(**MADE)
    with joined("cpu") as group:
        read = group.one_by_one(lambda: read_dataset(data, made, seed=1, cache=folder / "cache"))
        cuts = read.cut(made)
        parts = cuts.parts(read.positions)
        encoder = fit_encoder(made.schema, read, parts["train"])
        encoded = group.one_by_one(lambda: encode_parts(read, encoder, made, cuts, parts, folder / "cache"))
        rows, valid = (MappedRows(encoded[name], read.labels[parts[name]], "cpu") for name in ("train", "valid"))
        assert rows.rows % 2
        assert valid.rows % 2
        for batch_size in BATCH_SIZES:
            torch.manual_seed(5)
            model = WideDeep(encoder.layout, (16, 8), 0.0)
            torch.nn.init.normal_(model.wide.weight)
            batch = next(iter(Shuffle(rows, batch_size, NONE, 1, group=group).epoch()))
            judged = metrics.evaluate(valid.labels, scores(model, valid, group), None)
            loss, gradients = (by_shared_tables if way == "shared" else by_exchange)(model, batch, batch_size, group)
            found = {"loss": sum(group.gather_objects(loss)), "auc": judged["auc"], "gradients": gradients}
            torch.save(found, folder / f"{way}-{batch_size}-{size}-{rank}.pt")


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first steps of one process, and of two by each way."""
    folder = tmp_path_factory.mktemp("steps")
    data = write_data(folder / "data", clicks(rows=651))
    together(first_steps, 1, data, folder, "exchanged")
    for way in ("exchanged", "shared") if shares_tables else ("exchanged",):
        together(first_steps, 2, data, folder, way)
    return folder


@pytest.mark.parametrize("way", ["exchanged", pytest.param("shared", marks=needs_shared_tables)])
@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_loss_auc_and_first_gradients_of_two_processes_are_those_of_one(steps: Path, batch_size: int, way: str) -> None:
    names = f"exchanged-{batch_size}-1-0.pt", f"{way}-{batch_size}-2-0.pt", f"{way}-{batch_size}-2-1.pt"
    one, *others = (torch.load(steps / name, weights_only=True) for name in names)
    for other in others:
        assert other["loss"] == pytest.approx(one["loss"], abs=1e-6)
        assert other["auc"] == pytest.approx(one["auc"], abs=1e-6)
        assert other["gradients"].keys() == one["gradients"].keys()
        for name, wanted in one["gradients"].items():
            assert torch.allclose(other["gradients"][name], wanted, rtol=0, atol=1e-5), name


def add_up(rank: int, size: int, port: int, folder: Path) -> None:
    join(rank, size, port)
    with joined("cpu") as group:
        layer, table = torch.nn.Linear(3, 2), torch.nn.Embedding(10, 4, sparse=True)
        torch.nn.init.ones_(layer.weight)
        torch.nn.init.ones_(table.weight)
        if rank == 0:  # the other's part of the batch is empty
            ids = torch.tensor([1, 1, 7])
            (layer(torch.ones(2, 3)).sum() + (table(ids) * torch.arange(3.0)[:, None]).sum()).backward()
        flag = Exchange(group, [*layer.parameters(), *table.parameters()]).add(1.0 + rank)
        scores = group.gather_scores(torch.arange(*group.share(7), dtype=torch.float32).numpy(), 7)
        assert table.weight.grad is not None
        found = {"table": table.weight.grad.coalesce().to_dense(), "layer": layer.weight.grad}
        torch.save({**found, "flag": flag, "scores": scores.tolist()}, folder / f"{rank}.pt")


def test_gradients_and_uneven_scores_are_the_same_in_all_processes(tmp_path: Path) -> None:
    together(add_up, 3, tmp_path)
    for rank in range(3):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert torch.equal(found["layer"], torch.full((2, 3), 2.0))
        assert found["table"][1].tolist() == [1.0] * 4
        assert found["table"][7].tolist() == [2.0] * 4
        assert float(found["table"].sum()) == 12.0
        assert found["flag"] == 6.0
        assert found["scores"] == [0, 1, 2, 3, 4, 5, 6]


def threads_of_gloo() -> list[str]:
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo" in name]


def threads_left(rank: int, size: int, port: int, folder: Path) -> None:
    join(rank, size, port)
    with joined("cpu") as group:
        layer = torch.nn.Linear(2, 1)
        layer(torch.ones(1, 2)).sum().backward()
        torch.optim.Adam(layer.parameters()).step()
        group.gather_objects(None)
        during = threads_of_gloo()
    (folder / f"{rank}.json").write_text(json.dumps([during, threads_of_gloo()]))


@pytest.mark.skipif(sys.platform != "linux", reason="threads are listed in /proc")
def test_no_thread_of_a_group_outlives_it(tmp_path: Path) -> None:
    """One that does may abort a process that has trained and published, as it ends."""
    together(threads_left, 2, tmp_path)
    for rank in range(2):
        during, after = json.loads((tmp_path / f"{rank}.json").read_text())
        assert during
        assert after == []


def test_shares_of_rows_are_all_rows_once() -> None:
    for rows in (0, 1, 2, 7, 100):
        shares = [Group(rank, 3).share(rows) for rank in range(3)]
        assert [n for start, end in shares for n in range(start, end)] == list(range(rows))


def toml(path: Path) -> Path:
    """The tiny config as a file."""
    made = tables(**{**MADE, "train": {"batch_size": 16, "epochs": 3000, "patience": 3000}})
    lines: list[str] = []
    for name, section in made.items():
        for table in section if isinstance(section, list) else [section]:
            lines.append(f"[[{name}]]" if isinstance(section, list) else f"[{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.slow
def test_torchrun_that_is_terminated_leaves_a_checkpoint_for_all(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    where = ["--config", toml(tmp_path / "c.toml"), "--data", data, "--artifacts", tmp_path / "a", "--version", "v1"]
    run = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        free_port(),
        "-m",
        "training",
        "fit",
    ]
    process = subprocess.Popen([sys.executable, *map(str, [*run, *where])])
    while not (tmp_path / "a" / ".runs").exists():
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(2)
    process.send_signal(signal.SIGTERM)
    asked = time.monotonic()
    process.wait(timeout=40)
    assert time.monotonic() - asked < 10
    assert list((tmp_path / "a" / ".checkpoints" / "v1").glob("*.pt"))
