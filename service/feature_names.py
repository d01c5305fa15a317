"""Which names a request may use: those of the answering version where they belong, and what becomes of the rest.

known to this version, here              read by the encoder
known to another version alone           ignored and counted
known, but on another side               a fault that says where it belongs (counted where the service ignores)
known to no version                      a fault that names the nearest (counted where the service ignores)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from service.scoring.known import KnownNames
from service.scoring.predictor import RankRequest, RowRequest
from service.scoring.schema import FeatureSchema, nearest
from service.scoring.values import Fault

Loc = tuple[str | int, ...]

# Longest name that an error repeats, and most faults that are looked for.
MAX_NAME = 80
MAX_FAULTS = 20

WHERE = {"user": "in 'user'", "context": "in 'context'", "item": "with its candidate"}


@dataclass(slots=True)
class Ignored:
    """Names left aside: how often each that some version knows, and how often others."""

    known: dict[str, int]
    unlisted: int = 0


@dataclass(frozen=True, slots=True)
class FeatureNames:
    """The names of one version by the place where a request gives them; unit and item key are names too."""

    user: frozenset[str]
    context: frozenset[str]
    item: frozenset[str]
    all: frozenset[str]

    @classmethod
    def of(cls, schema: FeatureSchema) -> FeatureNames:
        sides: dict[str, set[str]] = {"user": set(), "context": set(), "item": set()}
        for feature in schema.features:
            sides[feature.side].add(feature.name)
        sides["user"] |= {schema.unit} if schema.unit else set()
        sides["item"] |= {schema.item} if schema.item else set()
        user, context, item = (frozenset(sides[side]) for side in ("user", "context", "item"))
        return cls(user, context, item, user | context | item)

    def check(
        self, request: RowRequest | RankRequest, known: KnownNames, *, ignore: bool
    ) -> tuple[list[Fault], Ignored | None]:
        """The faults of a request's names (the first MAX_FAULTS), and what is left aside; None where nothing is."""
        faults: list[Fault] = []
        ignored: Ignored | None = None
        for loc, side, names in self._strangers(request):
            ignored = ignored or Ignored({})
            for name in names:
                fault = _fault(loc, side, name, known)
                if fault is not None and not ignore:
                    faults.append(fault)
                elif known.side(name):
                    ignored.known[name] = ignored.known.get(name, 0) + 1
                else:
                    ignored.unlisted += 1
            if len(faults) >= MAX_FAULTS:
                break
        return faults[:MAX_FAULTS], ignored

    def _strangers(self, request: RowRequest | RankRequest) -> Iterator[tuple[Loc, str, Iterable[str]]]:
        """(place, side, names that this version does not have there) of every object that has some; no side in rows."""
        if isinstance(request, RowRequest):
            if all(map(self.all.issuperset, request.instances)):
                return  # as nearly always, and without a turn of Python a row
            for n, row in enumerate(request.instances):
                if not row.keys() <= self.all:
                    yield ("instances", n), "", _others(row, self.all)
            return
        if not request.user.keys() <= self.user:
            yield ("user",), "user", _others(request.user, self.user)
        if not request.context.keys() <= self.context:
            yield ("context",), "context", _others(request.context, self.context)
        if request.keys is not None:
            return  # ids alone
        for n, candidate in enumerate(request.candidates if dict in set(map(type, request.candidates)) else ()):
            if type(candidate) is dict and not candidate.keys() <= self.item:
                yield ("candidates", n), "item", _others(candidate, self.item)


def _others(given: Mapping[str, object], own: frozenset[str]) -> Iterable[str]:
    return [name for name in given if name not in own]


def _fault(loc: Loc, side: str, name: str, known: KnownNames) -> Fault | None:
    """What is wrong with a name that the version does not have here; nothing where another version has it here."""
    sides = known.side(name)
    shown = shorten(name)
    if not sides:
        here = (other for other in known.sides if not side or side in known.sides[other])
        return Fault((*loc, shown), f"no version knows the feature '{shown}'{nearest(shown, here)}", "unknown_feature")
    if side and side not in sides:
        right = " or ".join(WHERE[one] for one in sorted(sides))
        return Fault((*loc, shown), f"'{shown}' belongs {right}", "wrong_side")
    return None


def shorten(name: str) -> str:
    """A client's name as an error repeats it."""
    return name if len(name) <= MAX_NAME else name[:MAX_NAME] + "…"
