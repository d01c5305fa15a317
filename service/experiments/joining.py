"""Sampled answers joined with what was shown and clicked of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from service.experiments.evidence import Joined
from service.state.samples import Kept, Seen

# An odd number that takes the answers' places apart in the 64 bits of their items' hashes.
_APART = np.uint64(0x9E3779B97F4A7C15)
Numbers = npt.NDArray[np.uint64]


def join(kept: Sequence[Kept], seen: Sequence[Seen]) -> tuple[Joined, ...]:
    """A value for each answering version. Where an experiment has impressions, only what was shown or clicked is in it:
    nobody can have clicked the rest; where it has none, all items of the answers are."""
    places = {one.prediction: place for place, one in enumerate(kept)}
    shown = _numbers([(places[one.prediction], one.item) for one in seen])
    clicked = _numbers([(places[one.prediction], one.item) for one in seen if one.clicked])
    has_impressions = len(shown) > len(clicked)
    found = []
    for version in sorted({one.version for one in kept}):
        mine = [one for one in kept if one.version == version]
        items = _numbers([]) if not mine else np.concatenate([_of(one, places[one.prediction]) for one in mine])
        which = np.isin(items, shown) if has_impressions else np.ones(len(items), np.bool_)
        rows = [len(one.scores) // 4 for one in mine]
        shadow_version, shadow = _shadow(mine)
        found.append(
            Joined(
                version,
                np.frombuffer(b"".join(one.scores for one in mine), "<f4").astype(np.float64)[which],
                np.isin(items, clicked)[which],
                np.repeat(np.array([one.unit for one in mine], np.uint64), rows)[which],
                shadow_version,
                shadow[which],
            )
        )
    return tuple(found)


def _shadow(kept: Sequence[Kept]) -> tuple[str | None, npt.NDArray[np.float64]]:
    """The version that shadowed most of the answers, and its scores: NaN where it was not asked."""
    versions = Counter(one.shadow_version for one in kept if one.shadow_version is not None)
    version = min(versions, key=lambda name: (-versions[name], name)) if versions else None
    scores = [
        one.shadow
        if one.shadow is not None and one.shadow_version == version
        else np.full(len(one.scores) // 4, np.nan, "<f4").tobytes()
        for one in kept
    ]
    return version, np.frombuffer(b"".join(scores), "<f4").astype(np.float64)


def _of(one: Kept, place: int) -> Numbers:
    return np.frombuffer(one.items, "<i8").astype(np.int64).view(np.uint64) ^ np.array([place], np.uint64) * _APART


def _numbers(pairs: Sequence[tuple[int, int]]) -> Numbers:
    """One number for each (answer's place, item)."""
    if not pairs:
        return np.zeros(0, np.uint64)
    places = np.array([place for place, _ in pairs], np.uint64)
    items = np.array([item for _, item in pairs], np.int64).view(np.uint64)
    return items ^ places * _APART
