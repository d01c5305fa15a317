"""A fit that is stopped and taken up again ends where the unbroken one ends, to the last bit."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from service.scoring.files import MODULE
from tests.training.tiny_data import clicks, config, fit, visible, write_data
from training import train
from training.checkpoint import CHECKPOINTS, Checkpoints, claimed
from training.config import Config
from training.errors import FitError
from training.stopping import Stopping, Terminated

# Reading the module's weights; what is deprecated is torch's own reader, named in service/scoring.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

MADE: dict[str, Any] = {
    "train": {"batch_size": 32, "epochs": 4, "patience": 4, "deep_optimizer": "adam"},
    "model": {"dropout": 0.3},
}


class StopsAfter(Stopping):
    """As if SIGTERM came while the n-th batch was at work."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self._left = batches

    @property
    def asked(self) -> bool:
        self._left -= 1
        return self._left < 0

    @asked.setter
    def asked(self, value: bool) -> None:
        pass


def weights(version: Path) -> dict[str, torch.Tensor]:
    return dict(torch.jit.load(version / MODULE).state_dict())


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def stopped(made: Config, data: Path, artifacts: Path, batches: int, **options: Any) -> str:
    with pytest.raises(Terminated) as caught:
        train.main(made, data, artifacts, "v1", device="cpu", command="", stopping=StopsAfter(batches), **options)
    return str(caught.value)


@pytest.mark.parametrize("batches", [1, 15, 40])
def test_a_stopped_fit_goes_on_to_the_same_weights(tmp_path: Path, batches: int) -> None:
    made, data = config(**MADE), write_data(tmp_path / "data")
    unbroken = fit(made, data, tmp_path / "unbroken")
    assert "--resume goes on from there" in stopped(made, data, tmp_path / "broken", batches)
    assert visible(tmp_path / "broken") == []
    resumed = train.main(made, data, tmp_path / "broken", "v1", device="cpu", command="", resume=True)
    assert same(weights(resumed), weights(unbroken))


def test_a_fit_that_is_stopped_twice_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    made, data = config(**MADE), write_data(tmp_path / "data")
    unbroken = fit(made, data, tmp_path / "unbroken")
    stopped(made, data, tmp_path / "broken", 5)
    stopped(made, data, tmp_path / "broken", 18, resume=True)
    resumed = train.main(made, data, tmp_path / "broken", "v1", device="cpu", command="", resume=True)
    assert same(weights(resumed), weights(unbroken))


def test_early_stopping_goes_on_where_it_was(tmp_path: Path) -> None:
    made = config(train={"batch_size": 32, "epochs": 50, "patience": 1, "deep_lr": 0.2})
    data = write_data(tmp_path / "data")
    unbroken = fit(made, data, tmp_path / "unbroken")
    stopped(made, data, tmp_path / "broken", 20)
    resumed = train.main(made, data, tmp_path / "broken", "v1", device="cpu", command="", resume=True)
    assert same(weights(resumed), weights(unbroken))


def test_a_published_version_leaves_no_checkpoint(tmp_path: Path) -> None:
    made, data = config(**MADE), write_data(tmp_path / "data")
    fit_often(made, data, tmp_path)
    assert not (tmp_path / CHECKPOINTS / "v1").exists()


def fit_often(made: Config, data: Path, artifacts: Path) -> Path:
    return train.main(made, data, artifacts, "v1", device="cpu", command="", checkpoint_minutes=0.0)


def test_resume_without_a_checkpoint_trains_from_the_start(tmp_path: Path) -> None:
    made, data = config(**MADE), write_data(tmp_path / "data")
    resumed = train.main(made, data, tmp_path / "broken", "v1", device="cpu", command="", resume=True)
    assert same(weights(resumed), weights(fit(made, data, tmp_path / "unbroken")))


def test_a_checkpoint_of_another_config_is_refused(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    stopped(config(**MADE), data, tmp_path / "a", 3)
    with pytest.raises(FitError, match="another config, data"):
        train.main(config(), data, tmp_path / "a", "v1", device="cpu", command="", resume=True)


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    stopped(config(**MADE), data, tmp_path / "a", 3)
    write_data(tmp_path / "data", clicks(rows=700))
    with pytest.raises(FitError, match="another config, data"):
        train.main(config(**MADE), data, tmp_path / "a", "v1", device="cpu", command="", resume=True)


def test_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "v1", "a purpose")
    for number in range(5):
        checkpoints.save({"number": number})
    assert sorted(path.name for path in (tmp_path / CHECKPOINTS / "v1").iterdir()) == ["4.pt", "5.pt"]
    assert checkpoints.newest() == {"number": 4}


def test_the_one_before_is_taken_where_the_newest_is_damaged(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "v1", "a purpose")
    checkpoints.save({"number": 0})
    path = checkpoints.save({"number": 1})
    path.write_bytes(path.read_bytes()[:100])
    assert checkpoints.newest() == {"number": 0}


def command(data: Path, artifacts: Path, toml: Path) -> list[str]:
    where = ["--config", str(toml), "--data", str(data), "--artifacts", str(artifacts), "--version", "v1"]
    return [sys.executable, "-m", "training", "fit", *where, "--resume", "--checkpoint-minutes", "0.003"]


TOML = """
[data]
unit = "user_id"
item = "item_id"
timestamp = "timestamp"
[[features]]
name = "user_id"
kind = "categorical"
side = "user"
wide = true
[[features]]
name = "item_id"
kind = "categorical"
side = "item"
[[features]]
name = "age"
kind = "numeric"
side = "user"
[model]
hidden = [32, 16]
dropout = 0.3
[train]
batch_size = 16
epochs = 8
patience = 8
"""


def killed_now_and_then(tmp_path: Path, kills: int, sent: signal.Signals, seed: int) -> None:
    """Kill at random moments, starting again each time; the end must be the unbroken run's."""
    data, toml, chance = write_data(tmp_path / "data", clicks(rows=6000)), tmp_path / "fit.toml", random.Random(seed)
    (data / "items.parquet").unlink()
    toml.write_text(TOML)
    subprocess.run(command(data, tmp_path / "unbroken", toml), check=True, capture_output=True)
    for _ in range(kills):
        process = subprocess.Popen(command(data, tmp_path / "broken", toml), stdout=subprocess.DEVNULL)
        while process.poll() is None and not list(tmp_path.glob("broken/.checkpoints/v1/*.pt")):
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 1.5))
        process.send_signal(sent)
        asked = time.monotonic()
        assert process.wait(timeout=30) in (-sent, 128 + sent, 0, 1)
        assert time.monotonic() - asked < 10
    if not (tmp_path / "broken" / "v1").exists():
        subprocess.run(command(data, tmp_path / "broken", toml), check=True, capture_output=True)
    assert same(weights(tmp_path / "broken" / "v1"), weights(tmp_path / "unbroken" / "v1"))


def test_a_fit_killed_at_a_random_moment_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    killed_now_and_then(tmp_path, 1, signal.SIGKILL, seed=3)


@pytest.mark.slow
def test_a_fit_killed_twenty_times_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    """A run that came to its end is checked, and another begun."""
    data, toml, chance = write_data(tmp_path / "data", clicks(rows=6000)), tmp_path / "fit.toml", random.Random(1)
    (data / "items.parquet").unlink()
    toml.write_text(TOML)
    subprocess.run(command(data, tmp_path / "unbroken", toml), check=True, capture_output=True)
    version, taken_up, ends = tmp_path / "broken" / "v1", 0, 0
    for kill in range(20):
        before = newest(tmp_path / "broken")
        process = subprocess.Popen(command(data, tmp_path / "broken", toml), stdout=subprocess.DEVNULL)
        if kill % 4:  # within training, else anywhere from the first import on
            while process.poll() is None and newest(tmp_path / "broken") == before:
                time.sleep(0.01)
        time.sleep(chance.uniform(0, 1 if kill % 4 else 8))
        process.kill()
        process.wait(timeout=30)
        if version.exists():  # it was over before
            ends += check_and_remove(version, tmp_path / "unbroken" / "v1")
        taken_up += before is not None
    subprocess.run(command(data, tmp_path / "broken", toml), check=True, capture_output=True)
    ends += check_and_remove(version, tmp_path / "unbroken" / "v1")
    print(f"20 kills, {taken_up} of them of a run that had been taken up; {ends} ends, all equal")


def newest(artifacts: Path) -> int | None:
    """The number of the newest checkpoint."""
    return max((int(path.stem) for path in artifacts.glob(".checkpoints/v1/*.pt")), default=None)


def check_and_remove(version: Path, unbroken: Path) -> bool:
    assert same(weights(version), weights(unbroken))
    shutil.rmtree(version)
    return True


def test_sigterm_within_training_writes_a_checkpoint_and_raises(tmp_path: Path) -> None:
    made = config(train={"batch_size": 8, "epochs": 10_000, "patience": 10_000})
    data = write_data(tmp_path / "data")
    timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    with Stopping().listening() as stopping, pytest.raises(Terminated, match="checkpoint"):
        train.main(made, data, tmp_path / "a", "v1", device="cpu", command="", stopping=stopping)
    assert list((tmp_path / "a" / CHECKPOINTS / "v1").glob("*.pt"))


def test_two_fits_of_one_name_do_not_run_at_once(tmp_path: Path) -> None:
    with claimed(tmp_path, "v1"):
        with pytest.raises(FitError, match="another fit of version 'v1' is at work"), claimed(tmp_path, "v1"):
            pass
        with claimed(tmp_path, "v2"):
            pass
    with claimed(tmp_path, "v1"):
        pass
