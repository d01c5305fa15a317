"""Staging for a device, tried on the host; ids are checked before they go there."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from service.scoring.bounds import Bounds, OutOfRange, check_rows
from service.scoring.encoded import Bag, Encoded
from service.scoring.engine import ALL, probe
from service.scoring.transfer import Staging
from tests.tiny import tiny_encoder

LAYOUT = tiny_encoder().layout


def test_arrays_of_both_types_and_any_shape_arrive_as_they_were():
    arrays = [np.arange(6, dtype=np.float32).reshape(3, 2), np.zeros((3, 0), np.int64), np.arange(5), np.arange(1)]
    found = Staging(pinned=False).put(arrays, torch.device("cpu"))
    assert [one.dtype for one in found] == [torch.float32, torch.int64, torch.int64, torch.int64]
    assert all(np.array_equal(one.numpy(), sent) for one, sent in zip(found, arrays, strict=True))


def test_what_arrived_is_not_changed_by_the_next_batch():
    staging = Staging(pinned=False)
    first = staging.put([np.arange(4)], torch.device("cpu"))[0]
    staging.put([np.arange(4) + 7], torch.device("cpu"))
    assert first.tolist() == [0, 1, 2, 3]


def test_scores_come_back_in_an_array_of_their_own():
    staging = Staging(pinned=False)
    first = staging.get(torch.tensor([0.25, 0.5]))
    second = staging.get(torch.tensor([0.75, 1.0], dtype=torch.bfloat16))
    assert first.tolist() == [0.25, 0.5]
    assert second.tolist() == [0.75, 1.0]
    assert second.dtype == np.float32


def test_ids_at_the_ends_of_their_tables_pass():
    Bounds(LAYOUT).check(probe(LAYOUT), ALL)


@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_an_id_outside_its_table_is_refused(wrong: int):
    sample = probe(LAYOUT)
    sample.ids[1, 0] = wrong
    with pytest.raises(OutOfRange, match="outside its table"):
        Bounds(LAYOUT).check(sample, ALL)


@pytest.mark.parametrize("bag", [Bag(np.array([10**6]), np.array([0, 1])), Bag(np.array([0]), np.array([0, 2]))])
def test_a_list_outside_its_table_or_its_end_is_refused(bag: Bag):
    sample = probe(LAYOUT).slice(0, 1)
    with pytest.raises(OutOfRange):
        Bounds(LAYOUT).check(Encoded(sample.numerics, sample.ids, (bag,)), ALL)


def test_rows_of_another_sides_columns_are_refused():
    sample = probe(LAYOUT)
    with pytest.raises(OutOfRange, match="id columns"):
        Bounds(LAYOUT).check(Encoded(sample.numerics, sample.ids[:, :1], sample.bags), ALL)


@pytest.mark.parametrize("rows", [[-1], [3], [0, 1, 3]])
def test_a_row_that_a_catalog_lacks_is_refused(rows: list[int]):
    with pytest.raises(OutOfRange):
        check_rows(np.array(rows), 3)
