"""The epochs that prediction ids name: which experiment and which arms each of them had. A cache of the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from service.experiments.prediction_id import INLINE
from service.traffic import shares_of

REMEMBERED = 1000


class Named(NamedTuple):
    """One epoch: its experiment, the arms in the order of their places in ids, when it began (seconds since 1970)."""

    number: int
    experiment: str
    arms: tuple[str, ...]
    places: Mapping[str, int]
    shares: Mapping[str, float]
    began: float


def named(number: int, traffic: Mapping[str, Any], began: float) -> Named:
    """The epoch of a split as the history has it."""
    names = {*traffic["weights"]} | ({traffic["default"]} if traffic["default"] else set())
    arms = tuple(sorted(names))[:INLINE]
    places = {version: place for place, version in enumerate(arms)}
    return Named(number, traffic["experiment"], arms, places, shares_of(traffic["weights"]), began)


class Epochs:
    """`past` gives one epoch's traffic and when it began, from the store; None where there was none. One thread."""

    def __init__(self, past: Callable[[int], tuple[Mapping[str, Any], float] | None]) -> None:
        self._past = past
        self._known: dict[int, Named] = {}

    def get(self, number: int) -> Named | None:
        found = self._known.get(number)
        if found is None and (row := self._past(number)) is not None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            found = self._known[number] = named(number, *row)
        return found

    def forget(self) -> None:
        """Ask anew: the state may have been set back."""
        self._known.clear()
