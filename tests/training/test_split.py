import numpy as np
import pytest

from training.config import SplitConfig
from training.errors import DataFault
from training.split import Cuts, cut, draws


def sizes(cuts: Cuts, positions: np.ndarray) -> list[int]:
    return [len(rows) for rows in cuts.parts(positions).values()]


def test_a_time_split_takes_the_last_rows_and_nothing_later_trains() -> None:
    positions = np.random.default_rng(0).permutation(100).astype(float)
    parts = cut(SplitConfig(kind="time", valid=0.2, test=0.1), positions, 1).parts(positions)
    assert positions[parts["train"]].max() < positions[parts["valid"]].min()
    assert positions[parts["valid"]].max() < positions[parts["test"]].min()
    assert [len(rows) for rows in parts.values()] == [70, 20, 10]


def test_rows_of_one_instant_fall_on_one_side() -> None:
    positions = np.array([1.0, 2, 2, 2, 2, 2, 2, 3, 3, 3])
    cuts = cut(SplitConfig(kind="time", valid=0.1, test=0.2), positions, 1)
    parts = cuts.parts(positions)
    sides = [{part for part, rows in parts.items() if instant in positions[rows]} for instant in (1.0, 2.0, 3.0)]
    assert all(len(side) == 1 for side in sides)


def test_cuts_survive_their_dictionary() -> None:
    for cuts in (Cuts("time", 3.0, 5.0, 2), Cuts("random", 0.8, float("inf"), 7)):
        assert Cuts.from_dict(cuts.to_dict()) == cuts


def test_a_random_split_keeps_a_rows_side_when_rows_are_added() -> None:
    split = SplitConfig(kind="random", valid=0.1, test=0.1)
    short, long = draws(1000, 3), draws(2000, 3)
    cuts = cut(split, short, 3)
    assert (cuts.parts(long)["train"][: len(cuts.parts(short)["train"])] == cuts.parts(short)["train"]).all()
    assert sizes(cuts, short) == [800, 100, 100]


def test_too_few_rows_for_the_split_are_refused() -> None:
    with pytest.raises(DataFault, match="too few rows"):
        cut(SplitConfig(kind="time", valid=0.1, test=0.1), np.arange(4.0), 1)


def test_rows_in_a_gap_belong_to_no_part() -> None:
    positions = np.arange(100.0)
    cuts = cut(SplitConfig(kind="time", valid=0.2, test=0.1, gap=5), positions, 1)
    parts = cuts.parts(positions)
    assert [(rows[0], rows[-1]) for rows in parts.values()] == [(0, 64), (70, 84), (90, 99)]
    assert Cuts.from_dict(cuts.to_dict()) == cuts


def test_a_gap_that_eats_a_part_is_refused() -> None:
    with pytest.raises(DataFault, match="a gap of 50 s leaves the valid part empty"):
        cut(SplitConfig(kind="time", valid=0.2, test=0.1, gap=50), np.arange(100.0), 1)
