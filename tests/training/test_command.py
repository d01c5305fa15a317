"""The command line: exit codes, one plain line, nothing published by a failed run."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.training.tiny_data import config, fit, tables, visible, write_data
from training.__main__ import main
from training.errors import FetchError, FitError
from training.fetch import fetch_movielens
from training.run import Best, Epoch


def toml(folder: Path) -> Path:
    """The tiny config as a TOML file; JSON's scalars and lists are TOML's too."""
    made = tables()
    lines = []
    for name in ("data", "model", "train"):
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in made[name].items())]
    for name in ("features", "crosses"):
        for table in made[name]:
            lines += [f"[[{name}]]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    (folder / "config.toml").write_text("\n".join(lines))
    return folder / "config.toml"


def words(folder: Path, *more: str) -> list[str]:
    artifacts = str(folder / "artifacts")
    return [
        "fit",
        "--config",
        str(toml(folder)),
        "--data",
        str(folder),
        "--artifacts",
        artifacts,
        "--version",
        "v1",
        *more,
    ]


def test_a_fit_from_the_shell_publishes_and_logs_a_line_an_epoch(tmp_path: Path) -> None:
    write_data(tmp_path)
    command = [sys.executable, "-m", "training", *words(tmp_path, "--epochs", "2", "--device", "cpu")]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # as in conftest.py
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("epoch")] == [
        "epoch 1",
        "epoch 2",
    ]
    assert visible(tmp_path / "artifacts") == ["v1"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--config", "absent.toml"], "absent.toml"),
        (["--data", "absent"], "absent: no such file or folder"),
    ],
)
def test_what_a_user_can_mend_is_one_line_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], says: str
) -> None:
    write_data(tmp_path)
    assert main(words(tmp_path, *more)) == 1
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert visible(tmp_path / "artifacts") == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_cuda_without_a_device_is_exit_code_1_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_data(tmp_path)
    assert main(words(tmp_path, "--device", "cuda")) == 1
    assert "no usable CUDA device" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--amp", "fp8"], "--amp"),
        (["--gpu-memory-fraction", "1.5"], "must be above 0 and at most 1"),
        (["--checkpoint-minutes", "-1"], "must be at least 0"),
        (["--version", "a/b"], "--version: 'a/b' cannot name a version"),
        (["--version", ".."], "cannot name a version"),
        (["--version", "weights"], "cannot name a version"),
        (["--version", "v 1"], "cannot name a version"),
        (["--epochs", "x"], "--epochs: must be a whole number, found 'x'"),
        (["--epochs", "0"], "--epochs: must be at least 1"),
        (["--seed", "-1"], "--seed: must be at least 0"),
        (["--seed", "99999999999999999999"], "--seed: must be at least 0 and at most"),
        (["--device", "tpu"], "--device"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], says: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words(tmp_path, *more))
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert says in error
    assert error.count("\n") == 1


def test_evaluate_prints_one_json_object_split_at_the_versions_own_cuts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_data(tmp_path / "data")
    version = fit(config(), data, tmp_path / "artifacts")
    capsys.readouterr()
    counts = {}
    for split in ("train", "valid", "test", "all"):
        assert main(["evaluate", "--artifact", str(version), "--data", str(data), "--split", split]) == 0
        out = capsys.readouterr().out
        assert out.count("\n") == 1
        counts[split] = json.loads(out)["rows"]
    assert counts == {"train": 480, "valid": 60, "test": 60, "all": 600}


def test_evaluate_takes_rows_that_a_fit_has_cached_and_else_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_data(tmp_path / "data")
    version = fit(config(), data, tmp_path / "artifacts")
    (tmp_path / "aside").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "aside"))
    cache = tmp_path / "artifacts" / ".cache"
    kept = sorted(cache.iterdir())
    found = []
    for more in ([], ["--cache", str(cache)]):
        assert main(["evaluate", "--artifact", str(version), "--data", str(data), *more]) == 0
        found.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert found[0] == found[1]
    assert sorted(cache.iterdir()) == kept
    assert list((tmp_path / "aside").iterdir()) == []


def test_a_loss_that_is_not_finite_stops_and_publishes_nothing(tmp_path: Path) -> None:
    made = config(train={"wide_optimizer": "sgd", "wide_lr": 1e38})
    with pytest.raises(FitError, match="not finite"):
        fit(made, write_data(tmp_path / "data"), tmp_path / "artifacts")
    assert visible(tmp_path / "artifacts") == []


@pytest.mark.parametrize("wide", ["ftrl", "adagrad", "adam", "sgd"])
@pytest.mark.parametrize("deep", ["adagrad", "adam"])
def test_every_pair_of_optimizers_trains(tmp_path: Path, wide: str, deep: str) -> None:
    made = config(train={"wide_optimizer": wide, "deep_optimizer": deep, "epochs": 1})
    assert fit(made, write_data(tmp_path / "data"), tmp_path / "artifacts").is_dir()


def epoch(number: int, auc: float | None) -> Epoch:
    return Epoch(number, 0.5, 1.0, {"auc": auc, "reason": "one class only"})


@pytest.mark.parametrize(
    ("aucs", "best"),
    [([0.6, 0.7, 0.65], 2), ([0.6, 0.6], 1), ([None, 0.5, None], 2), ([0.5, None], 1), ([None, None], 2)],
)
def test_tr04_an_undefined_auc_is_never_best(aucs: list[float | None], best: int) -> None:
    kept = Best()
    for number, auc in enumerate(aucs, 1):
        kept.offer(epoch(number, auc), torch.nn.Linear(1, 1))  # type: ignore[arg-type]  # any module has a state
    assert kept.epoch is not None
    assert kept.epoch.number == best


def test_a_wheel_that_is_not_the_known_one_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "recbole.whl").write_bytes(b"PK")
    with pytest.raises(FetchError, match="sha256"):
        fetch_movielens(tmp_path / "out", wheel=tmp_path / "recbole.whl", say=lambda line: None)
    assert list((tmp_path / "out").iterdir()) == []


def test_an_index_out_of_reach_is_one_plain_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    assert main(["fetch", "movielens-100k", "--out", str(tmp_path / "out")]) == 1
    found = capsys.readouterr()
    assert "could not download" in found.err
    assert found.err.count("\n") == 1
    assert "GroupLens" in found.out


def test_the_licence_is_printed_even_where_the_data_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("events.parquet", "items.parquet", "v1.toml", "v2.toml"):
        (tmp_path / name).touch()
    assert main(["fetch", "movielens-100k", "--out", str(tmp_path)]) == 0
    assert "no commercial use" in capsys.readouterr().out
    assert math.isclose(sum(path.stat().st_size for path in tmp_path.iterdir()), 0)
