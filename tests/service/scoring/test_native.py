"""Native halves: what they refuse, what falls back to the module, and what a plan is read from.

That they score as the module does is held by test_engine.py and tests/training/test_halves.py, for every kernel.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from service.scoring import torchscript
from service.scoring.device import BF16
from service.scoring.encoded import Bag, Encoded
from service.scoring.engine import Engine
from service.scoring.features import FeatureEncoder
from service.scoring.native import NativeHalves, Plan, most_lanes, plan_of
from tests.service.scoring.halved import LANES, encoder_of, items_of, save_model, users_of, whole_of
from tests.tiny import save_scripted
from training.calibration import Isotonic, Platt
from training.export import save_module
from training.model import WideDeep

NATIVE = [lanes for lanes in LANES if lanes]

pytestmark = pytest.mark.skipif(not NATIVE, reason="no compiler, or no kernel for this processor")


@pytest.fixture(scope="module")
def encoder() -> FeatureEncoder:
    return encoder_of()


@pytest.fixture(scope="module")
def path(encoder: FeatureEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("module") / "model.pt"
    save_model(encoder, path)
    return path


@pytest.fixture
def plan(path: Path) -> Plan:
    plan = plan_of(torchscript.read_module(path, "cpu"))
    assert plan is not None
    return plan


@pytest.fixture(params=NATIVE)
def native(plan: Plan, request: pytest.FixtureRequest) -> NativeHalves:
    return NativeHalves(plan, request.param)


def test_an_engine_uses_them_where_they_are(path: Path, encoder: FeatureEncoder):
    alone = Engine.load(path, "cpu").forward(whole_of(encoder))
    assert np.array_equal(alone, Engine.load(path, "cpu", lanes=most_lanes()).forward(whole_of(encoder)))
    assert not np.array_equal(alone, Engine.load(path, "cpu", lanes=0).forward(whole_of(encoder)))


def test_an_engine_says_what_computes(path: Path):
    told = {0: "torch", 8: "native avx2", 16: "native avx512"}
    for lanes in LANES:
        assert Engine.load(path, "cpu", lanes=lanes).computed_by == told[lanes]


@pytest.mark.parametrize("wrong", [-(1 << 40), 1 << 40])
def test_an_id_outside_of_its_table_is_an_error_and_no_crash(native: NativeHalves, encoder: FeatureEncoder, wrong: int):
    rows = users_of(encoder)
    for column in range(rows.ids.shape[1]):
        ids = rows.ids.copy()
        ids[3, column] = wrong
        with pytest.raises(IndexError, match="outside of its table"):
            native.users(replace(rows, ids=ids))


def test_a_list_with_an_id_outside_of_its_table_is_an_error(native: NativeHalves, encoder: FeatureEncoder):
    rows = items_of(encoder)
    for n, bag in enumerate(rows.bags):
        values = bag.values.copy()
        values[-1] = 1 << 40
        bags = (*rows.bags[:n], Bag(values, bag.offsets), *rows.bags[n + 1 :])
        with pytest.raises(IndexError, match="outside of its table"):
            native.items(replace(rows, bags=bags))


@pytest.mark.parametrize("wrong", [-1, 20])
def test_a_pair_of_a_row_that_is_not_there_is_an_error(native: NativeHalves, encoder: FeatureEncoder, wrong: int):
    users, items = native.users(users_of(encoder)), native.items(items_of(encoder))
    for rows, index in (([wrong], [0]), ([0], [wrong])):
        with pytest.raises(IndexError, match="a pair is of row"):
            native.rank(users, items, np.array(rows), np.array(index))


def test_rows_of_other_columns_are_refused(native: NativeHalves, encoder: FeatureEncoder):
    rows = users_of(encoder)
    with pytest.raises(ValueError, match="do not fit"):
        native.users(replace(rows, ids=rows.ids[:, :-1]))
    with pytest.raises(ValueError, match="do not fit"):
        native.users(replace(rows, numerics=rows.numerics[:-1]))
    with pytest.raises(ValueError, match="do not fit"):
        native.items(replace(items_of(encoder), bags=()))


def test_a_list_whose_ends_go_back_is_refused(native: NativeHalves, encoder: FeatureEncoder):
    rows = items_of(encoder)
    offsets = rows.bags[0].offsets.copy()
    offsets[1] = offsets[-1]
    with pytest.raises(ValueError, match="a bag"):
        native.items(replace(rows, bags=(Bag(rows.bags[0].values, offsets), *rows.bags[1:])))


@pytest.mark.parametrize("name", ["user.weight", "user.bias", "item.vectors", "layer0.weight", "layer1.bias"])
def test_a_plan_whose_arrays_do_not_fit_is_refused(plan: Plan, name: str):
    with pytest.raises(ValueError, match="do not fit"):
        NativeHalves({**plan, name: plan[name].reshape(-1)[:-1]}, NATIVE[0])


def test_no_rows_are_no_scores(native: NativeHalves, encoder: FeatureEncoder):
    assert native.forward(whole_of(encoder).slice(0, 0)).shape == (0,)


def test_a_number_that_is_none_stays_visible(native: NativeHalves, encoder: FeatureEncoder):
    whole = whole_of(encoder)
    numerics = whole.numerics.copy()
    numerics[5] = np.nan
    scores = native.forward(replace(whole, numerics=numerics))
    assert np.isnan(scores).tolist() == [row == 5 for row in range(whole.rows)]


def test_threads_do_not_disturb_each_other(native: NativeHalves, encoder: FeatureEncoder):
    whole = whole_of(encoder)
    parts = [whole.slice(n, whole.rows) for n in range(16)]
    wanted = [native.forward(part) for part in parts]
    with ThreadPoolExecutor(8) as pool:
        for found, alone in zip(pool.map(native.forward, parts * 20), wanted * 20, strict=True):
            assert np.array_equal(found, alone)


def test_the_score_of_a_pair_does_not_depend_on_who_is_beside_it(native: NativeHalves, encoder: FeatureEncoder):
    whole = whole_of(encoder)
    together = native.forward(whole)
    assert [native.forward(whole.slice(n, n + 1))[0] for n in range(whole.rows)] == together.tolist()


def test_in_another_precision_the_module_computes(path: Path, encoder: FeatureEncoder):
    engine, module = Engine.load(path, "cpu"), Engine.load(path, "cpu", lanes=0)
    for one in (engine, module):
        one.use(BF16)
        one.fused_from = None
    assert np.array_equal(engine.forward(whole_of(encoder)), module.forward(whole_of(encoder)))


def _module(encoder: FeatureEncoder, path: Path, calibration: torch.nn.Module, hidden: tuple[int, ...] = (8,)) -> Plan:
    model = WideDeep(encoder.layout, hidden, 0.1).eval()
    model.calibration = calibration
    save_module(model, encoder.layout, path)
    return plan_of(torchscript.read_module(path, "cpu")) or {}


def test_a_platt_correction_is_in_the_plan(encoder: FeatureEncoder, tmp_path: Path):
    assert _module(encoder, tmp_path / "model.pt", Platt(2.0, -0.5))["correction"].tolist() == [2.0, -0.5]


def test_what_there_is_no_native_code_for_is_left_to_the_module(encoder: FeatureEncoder, tmp_path: Path):
    isotonic = Isotonic(torch.tensor([-1.0, 1.0]), torch.tensor([-2.0, 0.0]))
    assert not _module(encoder, tmp_path / "isotonic.pt", isotonic)
    assert not _module(encoder, tmp_path / "linear.pt", torch.nn.Identity(), hidden=())
    save_scripted(torch.nn.Sequential(torch.nn.Linear(2, 1)).eval(), tmp_path / "other.pt")
    assert plan_of(torchscript.read_module(tmp_path / "other.pt", "cpu")) is None


def test_without_a_compiled_module_everything_is_torchs(path: Path):
    code = (
        "import sys\nsys.modules['service.scoring.native._halves'] = None\n"
        "from pathlib import Path\nfrom service.scoring.engine import Engine\n"
        f"print(Engine.load(Path({str(path)!r}), 'cpu').has_halves)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_rows_of_one_side_may_lie_among_anothers(native: NativeHalves, encoder: FeatureEncoder):
    whole, users, items = whole_of(encoder), native.users(users_of(encoder)), native.items(items_of(encoder))
    pairs = np.repeat(np.arange(10), 20), np.tile(np.arange(20), 10)
    assert np.array_equal(native.forward(whole), native.rank(users, items, pairs[1], pairs[0]))
    assert isinstance(whole, Encoded)
