"""What operators may do to the document, each as one transaction: judged and written under one lock, or not at all.

Unknown     a version or an epoch that is not there          (404)
Conflict    the stored state does not allow it               (409)
Stale       the document is not the one that was meant       (412)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from service.state import Document, Shadow, Transaction, Worker
from service.state.workers import overall
from service.traffic import moved_fraction


class Unknown(Exception):
    """No such version, or no such epoch."""


class Conflict(Exception):
    """The change cannot be made in the present state."""


class Stale(Exception):
    """`If-Match` named another epoch than the current document's, which is carried here."""

    def __init__(self, document: Document) -> None:
        super().__init__(f"the split is at epoch {document.epoch} now")
        self.document = document


@dataclass(frozen=True, slots=True)
class Proposal:
    """A new split as it was asked for; None, or for the shadow "keep", keeps the value that is there."""

    weights: Mapping[str, float]
    coverage: float | None = None
    default: str | None = None
    shadow: Shadow | Literal["keep"] | None = "keep"
    experiment: str | None = None
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """Which versions exist, which epochs the change is meant for (None: any), who makes it, and whether for real."""

    known: Collection[str]
    epochs: Collection[int] | None = None
    who: str = "admin"
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    """The split before and after. `moved` is the fraction of units that another version answers."""

    old: Document
    new: Document
    moved: float
    warnings: list[str] = field(default_factory=list)

    @property
    def new_epoch(self) -> bool:
        return self.new.epoch != self.old.epoch


def start(change: Transaction, loaded: Collection[str], weights: Mapping[str, float]) -> Document:
    """Fill a store that nothing was ever written to; any other is left as it is."""
    document = change.document()
    if document.revision or not (loaded or weights):
        return document
    document = change.put_loaded(dict.fromkeys(sorted({*loaded, *weights}), 1))
    if not weights:
        return document
    first = replace(document, weights=_with_weight(weights), default=heaviest(weights))
    return change.put_traffic(first.traffic(), who="start", undo=None)


def put_weights(change: Transaction, proposal: Proposal, terms: Terms) -> Changed:
    """Replace the split. Raises Stale, Unknown for a version that is not there, Conflict for one that is not ready."""
    old = change.document()
    _check_epoch(old, terms)
    workers = change.workers()
    weights = _with_weight(proposal.weights)
    default = proposal.default or old.default or heaviest(weights)
    shadow = old.shadow if proposal.shadow == "keep" else proposal.shadow
    # What the document had before needs no check: its keeping is no part of the change.
    new = {default} if default != old.default else set()
    new |= {shadow["version"]} if shadow and shadow != old.shadow else set()
    _check_known([*proposal.weights, *sorted(new)], _known(terms, workers))
    _check_ready({*weights, *new}, workers)
    wanted = replace(
        old,
        weights=weights,
        coverage=old.coverage if proposal.coverage is None else proposal.coverage,
        default=default,
        shadow=shadow,
        experiment=proposal.experiment or old.experiment,
        comment=proposal.comment,
    )
    if wanted.same_traffic(old):
        return Changed(old, old, 0.0)
    return _replace(change, old, wanted, terms, undo=old.epoch or None)


def take_off(change: Transaction, version: str, terms: Terms, comment: str) -> Changed:
    """Take a version's weight to 0, whatever state the others are in: they answer already, and keep their proportion.
    Where no other has weight, the default gets it. Raises Stale."""
    old = change.document()
    _check_epoch(old, terms)
    left = {name: weight for name, weight in old.weights.items() if name != version}
    if not left and old.default:
        left = {old.default: 1}
    return _replace(change, old, replace(old, weights=left, comment=comment), terms, undo=old.epoch)


def rollback(change: Transaction, epoch: int | None, terms: Terms) -> Changed:
    """Undo the current split, or go to that of an epoch. Undone again it goes further back; always a new epoch."""
    old = change.document()
    _check_epoch(old, terms)
    current = change.past(old.epoch)
    target = epoch if epoch is not None else (current.undo if current else None)
    if target is None:
        raise Conflict("there is no earlier split to go back to")
    row = change.past(target)
    if row is None:
        raise Unknown(f"no epoch {target} in the history")
    new = replace(old.with_traffic(row.traffic), comment=f"rollback to epoch {target}")
    workers = change.workers()
    _check_known(new.named, _known(terms, workers))
    _check_ready(new.named, workers)
    return _replace(change, old, new, terms, undo=row.undo if epoch is None else old.epoch)


def ask(change: Transaction, version: str) -> tuple[Document, bool]:
    """Want a version loaded in all workers, those where it failed included: (document, whether it is new there)."""
    document = change.document()
    new = version not in document.loaded
    if new or overall(version, change.workers()).state == "failed":
        document = change.put_loaded({**document.loaded, version: document.revision + 1})
    return document, new


def unask(change: Transaction, version: str, asked: int) -> Document:
    """Take back `ask`, unless the version has been asked for anew or given a part to play."""
    document = change.document()
    if document.loaded.get(version) != asked or version in document.named:
        return document
    return change.put_loaded({name: at for name, at in document.loaded.items() if name != version})


def unload(change: Transaction, version: str, known: Collection[str]) -> Document:
    """Want a version no longer loaded. Conflict while it takes traffic."""
    document = change.document()
    if version not in document.loaded:
        _check_known([version], known)
    if version in document.weights:
        raise Conflict(f"version '{version}' has weight; give it weight 0 first (PUT /models/weights)")
    if version == document.default:
        raise Conflict(f"version '{version}' is the default; name another default first (PUT /models/weights)")
    if document.shadow and version == document.shadow["version"]:
        raise Conflict(f"version '{version}' shadows; clear the shadow first (PUT /models/weights)")
    # A new revision even where it was not in the set: workers then forget that its load failed.
    return change.put_loaded({name: at for name, at in document.loaded.items() if name != version})


def check_switchable(view: Transaction, version: str) -> None:
    """Conflict where a version's catalog cannot be switched now."""
    if version not in view.document().loaded:
        raise Conflict(f"version '{version}' is not loaded; load it first (PUT /models/{version})")
    _check_ready([version], view.workers())


def switch_catalog(change: Transaction, version: str, revision: int) -> tuple[Document, int | None]:
    """Want a version that is ready served with a catalog revision: (document, the revision before; None where it is
    the same). Workers that could not have it try again. Conflict where the version is not ready."""
    check_switchable(change, version)
    document = change.document()
    before = document.catalog(version)
    refused = any(one.refuses(revision) for worker in change.workers() if (one := worker.states.get(version)))
    if before == revision and not refused:
        return document, None
    return _with_catalog(change, document, version, revision), None if before == revision else before


def unswitch_catalog(change: Transaction, version: str, asked: int, before: int) -> Document:
    """Take back `switch_catalog`, unless the version has been asked for anew."""
    document = change.document()
    return _with_catalog(change, document, version, before) if document.loaded.get(version) == asked else document


def heaviest(weights: Mapping[str, float]) -> str:
    """The version with the most weight; of equals the smaller name."""
    return min(weights, key=lambda version: (-weights[version], version))


def _with_catalog(change: Transaction, document: Document, version: str, revision: int) -> Document:
    loaded = {**document.loaded, version: document.revision + 1}
    return change.put_loaded(loaded, {**document.catalogs, version: revision})


def _replace(change: Transaction, old: Document, new: Document, terms: Terms, undo: int | None) -> Changed:
    moved, warnings = moved_fraction(old.split(), new.split()), []
    if new.experiment != old.experiment and old.epoch:
        warnings.append(f"the experiment changes from '{old.experiment}' to '{new.experiment}': all units are redrawn")
    if not terms.dry_run:
        new = change.put_traffic(new.traffic(), who=terms.who, undo=undo)
    return Changed(old, new, moved, warnings)


def _with_weight(weights: Mapping[str, float]) -> dict[str, float]:
    """Those with weight, in one order; whole numbers as such, so that 90 is shown as it was given."""
    some = {version: weight for version, weight in sorted(weights.items()) if weight > 0}
    return {v: int(w) if float(w).is_integer() and w < 2**53 else w for v, w in some.items()}


def _check_epoch(document: Document, terms: Terms) -> None:
    if terms.epochs is not None and document.epoch not in terms.epochs:
        raise Stale(document)


def _known(terms: Terms, workers: list[Worker]) -> set[str]:
    """Versions on disk, and those that are loaded though their folder is gone: traffic can still be moved to them."""
    return {*terms.known, *(name for worker in workers for name, one in worker.states.items() if one.state == "ready")}


def _check_known(versions: Collection[str], known: Collection[str]) -> None:
    for version in versions:
        if version not in known:
            there = f"there are {', '.join(sorted(known))}" if known else "there are none"
            raise Unknown(f"no version '{version}' in the artifacts ({there})")


def _check_ready(versions: Collection[str], workers: list[Worker]) -> None:
    for version in sorted(versions):
        found = overall(version, workers)
        if found.state != "ready":
            why = f": {found.error}" if found.error else f"; load it first (PUT /models/{version})"
            raise Conflict(f"version '{version}' is {found.state}, not ready{why}")
