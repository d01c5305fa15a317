"""bfloat16 on real data: within .001 of the AUC that float32 reaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.scoring.artifact import read_manifest
from training import train
from training.config import read_config
from training.raw import convert_raw

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "adult"
CONFIG = Path(train.__file__).parent / "configs" / "adult.toml"


@pytest.mark.skipif(not DATA.is_dir(), reason="no adult beside the repository")
def test_adult_trains_in_bfloat16_to_the_auc_of_float32(tmp_path: Path) -> None:
    convert_raw("adult", DATA, tmp_path / "data")
    made = read_config(CONFIG).with_train(epochs=3, seed=None)
    aucs = {}
    for amp in ("off", "bf16"):
        version = train.main(made, tmp_path / "data", tmp_path, amp, device="cpu", command="", amp=amp)
        aucs[amp] = read_manifest(version)["metrics"]["test"]["auc"]
    assert aucs["off"] > 0.9
    assert aucs["bf16"] != aucs["off"]
    assert aucs["bf16"] == pytest.approx(aucs["off"], abs=1e-3)
