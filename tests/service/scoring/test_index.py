"""The index: texts to numbers through arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.scoring.index import ABSENT, EMPTY, KeyIndex, build_column, integer_keys, shared_columns, whole
from service.scoring.keys import Odd, find_values


def order(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int64)


WORDS = st.text(min_size=1) | st.integers().map(str)


@given(st.lists(WORDS, unique=True), st.lists(WORDS))
def test_every_text_is_found_and_no_other(texts: list[str], others: list[str]) -> None:
    column = build_column(texts, order(len(texts)))
    assert column.find(texts).tolist() == list(range(len(texts)))
    wanted = {text: n for n, text in enumerate(texts)}
    assert column.find(others).tolist() == [wanted.get(text, ABSENT) for text in others]


def test_keys_that_crowd_one_place_are_all_found() -> None:
    keys = np.arange(1000, dtype=np.uint64)
    index = KeyIndex.build(keys, order(1000))
    assert index.reach > 100
    assert index.find(keys).tolist() == list(range(1000))
    assert index.find(np.array([1000, 2**63], np.uint64)).tolist() == [ABSENT, ABSENT]


@given(st.lists(st.integers(0, 40), unique=True), st.lists(st.integers(0, 50)), st.integers(0, 2**64 - 1))
def test_the_compiled_way_and_that_of_arrays_find_the_same(known: list[int], wanted: list[int], salt: int) -> None:
    index = KeyIndex.build(np.array(known, np.uint64) ^ np.uint64(salt), order(len(known)))
    keys = np.array(wanted, np.uint64)
    assert index.find(keys, salt).tolist() == index.find_by_arrays(keys ^ np.uint64(salt)).tolist()


def test_a_text_that_stands_there_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        build_column(["a", "b", "a"], order(3))


@pytest.mark.parametrize("text", ["01", "+1", " 1", "1.0", "１", "-0", "", "a", str(2**63), str(-(2**63))])
def test_only_the_canonical_form_of_a_64_bit_integer_is_one(text: str) -> None:
    column = build_column(["1", "0"], order(2))
    assert column.integers
    assert column.find([text]).tolist() == [ABSENT]
    assert whole("-9") == -9


def test_integers_and_their_texts_are_one_value_in_both_kinds_of_column() -> None:
    numbers, texts = build_column(["7", "8"], order(2)), build_column(["7", "x"], order(2))
    for column in (numbers, texts):
        assert find_values(column, [7, "7", 9]).tolist() == [0, 0, ABSENT]
        assert find_values(column, [7, 7]).tolist() == [0, 0]
        assert find_values(column, ["7", "7"]).tolist() == [0, 0]


def test_integers_of_any_size_are_looked_up_and_what_is_no_category_is_odd() -> None:
    column = build_column(["7"], order(1))
    assert find_values(column, [7, 10**30, -(2**63)]).tolist() == [0, ABSENT, ABSENT]
    for value in (1.0, True, [], {}):
        with pytest.raises(Odd):
            find_values(column, [7, value])


def test_columns_that_share_an_index_keep_their_values_apart() -> None:
    columns = shared_columns({0: ["a", "b"], 3: ["b"], 4: ["1", "2"], 5: ["2"]}, lambda n: order(n) + 2)
    assert columns[0].find(["a", "b", "c", ""]).tolist() == [2, 3, ABSENT, EMPTY]
    assert columns[3].find(["a", "b"]).tolist() == [ABSENT, 2]
    assert columns[4].find(["1", "2"]).tolist() == [2, 3]
    assert columns[5].find(["1", "2"]).tolist() == [ABSENT, 2]
    assert columns[0].index is columns[5].index


def test_a_key_that_nobody_has_marks_the_empty_places() -> None:
    keys = integer_keys(np.array([0, 1, 2]))
    index = KeyIndex.build(keys, order(3))
    assert index.find(index.keys).tolist().count(ABSENT) == len(index.keys) - 3
