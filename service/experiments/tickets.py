"""Tickets: what a request to /predict is counted under from the moment its version is chosen, and its public id."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from service.experiments.epochs import Named, named
from service.experiments.keys import Keyring
from service.experiments.prediction_id import INLINE, Fields, seal
from service.experiments.samples import Sampler
from service.experiments.units import UnitHash
from service.state import Document


class Ticket(NamedTuple):
    """One prediction on its way: its public id, and what it is counted under."""

    prediction_id: str
    body: bytes
    epoch: Named
    version: str
    fields: Fields
    unit: int


class Issuer:
    """Makes tickets under the document of the moment; `keyring` is replaced where the keys change."""

    def __init__(self, sampler: Sampler, now: Callable[[], float]) -> None:
        self.keyring: Keyring | None = None
        self._sampler, self._now = sampler, now
        self._document: Document | None = None
        self._epoch = named(0, Document().traffic(), 0.0)
        self._hash = UnitHash("")

    def open(
        self, document: Document, version: str, reason: str, unit: str | None, *, rows: bool, shadowed: bool = False
    ) -> Ticket:
        """A prediction that `version` was assigned by `reason`, under the document of this moment.

        `rows` says that it is in row form, `shadowed` that another version scores it too: then its scores are kept,
        and whoever has both calls `keep`.
        """
        if document is not self._document:
            self._document, self._epoch = document, named(document.epoch, document.traffic(), 0.0)
            self._hash = UnitHash(self._epoch.experiment)
        epoch = self._epoch
        counted = reason == "split" and unit is not None
        # Of a unit that is not in the statistics only its cluster matters, and only where it is shadowed.
        sub, hash_ = self._hash(unit) if unit is not None and (counted or shadowed) else (0, 0)
        nonce = random.getrandbits(64)
        kept = (counted or shadowed) and self._sampler.wants(epoch.experiment, nonce >> 32, shadowed)
        place = epoch.places.get(version, INLINE)
        name = version if place == INLINE else ""
        at = int(self._now())
        fields = Fields(reason, rows, kept, place, epoch.number, sub if counted else 0, at, nonce, name)
        assert self.keyring is not None  # before the first request the ledger has read the keys
        prediction_id, body = seal(self.keyring, fields)
        return Ticket(prediction_id, body, epoch, version, fields, hash_ if unit is not None else nonce)
