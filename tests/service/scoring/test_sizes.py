"""Few sizes of blocks, each a little larger than what it holds."""

from __future__ import annotations

import numpy as np

from service.scoring.sizes import BLOCK, pad_index, pad_rows, padded_size, sizes_from
from tests.tiny import rows, tiny_encoder


def test_a_size_holds_its_rows_and_wastes_little():
    for count in range(64, BLOCK + 1):
        assert count <= padded_size(count) <= BLOCK
        assert padded_size(count) < 1.25 * count


def test_the_sizes_are_few():
    assert sizes_from(64)[0] == 64
    assert sizes_from(64)[-1] == BLOCK
    assert len(sizes_from(64)) <= 24


def test_an_index_is_padded_with_its_last_row():
    assert pad_index(np.array([4, 2]), 4).tolist() == [4, 2, 2, 2]


def test_padded_rows_keep_what_they_hold():
    encoded = tiny_encoder().encode_rows(rows()[:3])
    padded = pad_rows(encoded, 5)
    assert padded.rows == 5
    assert np.array_equal(padded.ids[:3], encoded.ids)
    assert padded.bags[0].offsets.tolist() == [*encoded.bags[0].offsets.tolist(), *[encoded.bags[0].offsets[-1]] * 2]
