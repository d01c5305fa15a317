"""The keys of a block of request values, as `index.py` has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from service.scoring.index import KeyColumn, Keys, Numbers, integer_keys, text_keys, whole
from service.scoring.values import ValueFault, category_text

Mask = npt.NDArray[np.bool_]

_NONE = np.zeros(0, bool)


class Odd(Exception):
    """A value that breaks a rule, or is out of the ordinary: not for a block, to be looked at alone."""


def find_values(column: KeyColumn, values: Sequence[Any]) -> Numbers:
    """The column's numbers (n,) of values as a request has them; negative where it has none. Raises Odd."""
    if column.integers:
        return column.index.find(integer_block(values)[0] ^ np.uint64(column.salt))
    return column.index.find(text_block(values)[0] ^ np.uint64(column.salt))


def text_block(values: Sequence[Any]) -> tuple[Keys, Mask]:
    """Unsalted keys (n,) by text. The mask is empty: a column of texts knows the empty one as missing."""
    if set(map(type, values)) != {str}:
        values = [one if type(one) is str else _text(one) for one in values]
    return text_keys(values), _NONE


def integer_block(values: Sequence[Any]) -> tuple[Keys, Mask]:
    """Unsalted keys (n,) by number, and which values are missing; an empty mask where none is."""
    if set(map(type, values)) == {int}:
        try:
            return integer_keys(np.fromiter(values, np.int64, len(values))), _NONE
        except OverflowError:
            pass  # some are beyond 64 bits, and so unknown
    texts = [one if type(one) is str else _text(one) for one in values]
    return integer_keys(np.fromiter(map(whole, texts), np.int64, len(texts))), np.array([not text for text in texts])


def _text(value: object) -> str:
    try:
        return category_text(value) or ""
    except ValueFault:
        raise Odd from None
