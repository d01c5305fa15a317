"""Events of a feedback request, each judged by itself: valid and in time, late, or invalid with what is wrong.

An event is known again by its `event_id`, else by prediction, type and item. A click is also known by prediction and
item alone, whatever its event id: an item has at most one click a prediction. A click counts whether or not an
impression of its item came before it or comes at all: a lost impression is no reason to lose a click.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite
from struct import Struct
from typing import NamedTuple

from service.experiments.epochs import Epochs, Named
from service.experiments.keys import Keyring
from service.experiments.prediction_id import INLINE, Fields, opened, read, unseal
from service.scoring.values import Fault
from service.state.counts import ANYTIME, KEY_BYTES

_WHEN = Struct(">II")
MAX_FAULTS = 20
MAX_ITEM = 1024  # characters of an item's id, or of an event's
TYPES = {"impression": 0, "click": 1}
# How far the clocks of two replicas may be apart.
SKEW_SECONDS = 60.0


class Prediction(NamedTuple):
    """What an id that is good says; `body` stands for the prediction in every key."""

    body: bytes
    epoch: Named
    version: str
    fields: Fields

    @property
    def propensity(self) -> float | None:
        """The arm's share inside the coverage; None where the split did not choose."""
        return self.epoch.shares.get(self.version) if self.fields.reason == "split" else None


class Event(NamedTuple):
    """One to be counted, unless its keys are known: all of them must be new. `item` is the item's text in UTF-8."""

    prediction: Prediction
    clicked: int
    item: bytes
    key: bytes
    click_key: bytes | None


@dataclass(slots=True)
class Judged:
    """The events of one request; `faults` are those of the first invalid ones, `loc` from the body on."""

    events: list[Event] = field(default_factory=list)
    late: int = 0
    invalid: int = 0
    faults: list[Fault] = field(default_factory=list)


class BadEvent(Exception):
    """Where in the event, what is wrong there, the kind of fault."""


class Judge:
    """Judges in one thread; `now()` is in seconds since 1970, `window` how long after it a prediction takes events."""

    def __init__(self, keyring: Callable[[], Keyring], epochs: Epochs, window: float, now: Callable[[], float]) -> None:
        self._keyring, self._epochs, self._window, self._now = keyring, epochs, window, now

    def __call__(self, events: list[object]) -> Judged:
        """Judge each; raises StateError where an epoch has to be looked up and cannot be."""
        judged, keyring, now = Judged(), self._keyring(), self._now()
        known: dict[str, Prediction | None] = {}
        for number, event in enumerate(events):
            try:
                found = self._judge(event, keyring, known)
            except BadEvent as error:
                judged.invalid += 1
                if len(judged.faults) < MAX_FAULTS:
                    where, message, kind = error.args
                    judged.faults.append(Fault(("events", number, *where), message, kind))
                continue
            if now > found.prediction.fields.at + 1 + self._window:
                judged.late += 1
            else:
                judged.events.append(found)
        return judged

    def _judge(self, event: object, keyring: Keyring, known: dict[str, Prediction | None]) -> Event:
        if type(event) is not dict:
            raise BadEvent((), "an event must be an object", "dict_type")
        text = event.get("prediction_id")
        if type(text) is not str:
            raise BadEvent(("prediction_id",), "must be the id of a prediction", "prediction_id")
        if text not in known:
            known[text] = self._prediction(text, keyring)
        prediction = known[text]
        if prediction is None:
            raise BadEvent(("prediction_id",), "no prediction's id, or a damaged one", "prediction_id")
        kind = event.get("type")
        clicked = TYPES.get(kind) if type(kind) is str else None
        if clicked is None:
            raise BadEvent(("type",), "must be 'impression' or 'click'", "event_type")
        item = _item(event.get("item_id"), prediction.fields)
        if event.get("timestamp") is not None:
            _check_timestamp(event["timestamp"])
        return _event(prediction, clicked, item, event.get("event_id"))

    def _prediction(self, text: str, keyring: Keyring) -> Prediction | None:
        body = unseal(keyring, text)
        fields = None if body is None else read(body)
        if body is None or fields is None:
            return None
        epoch = self._epochs.get(fields.epoch)
        # An epoch that began after the id was made is another one of the same number: the state was set back.
        if epoch is None or fields.at < epoch.began - SKEW_SECONDS:
            return None
        if fields.place != INLINE and fields.place >= len(epoch.arms):
            return None
        return Prediction(body, epoch, fields.name if fields.place == INLINE else epoch.arms[fields.place], fields)


def _event(prediction: Prediction, clicked: int, item: str, event_id: object) -> Event:
    text = item.encode("utf-8", "surrogatepass")
    own = _own_key(prediction.body, prediction.fields, clicked, text)
    if event_id is None:
        return Event(prediction, clicked, text, own, None)
    if type(event_id) is int:
        event_id = str(event_id)
    if type(event_id) is not str or not 0 < len(event_id) <= MAX_ITEM:
        raise BadEvent(("event_id",), f"must be a string of 1 to {MAX_ITEM} characters, or an integer", "event_id")
    key = ANYTIME + hashlib.sha256(event_id.encode("utf-8", "surrogatepass")).digest()[: KEY_BYTES - 1]
    return Event(prediction, clicked, text, key, own if clicked else None)


def _own_key(body: bytes, fields: Fields, clicked: int, item: bytes) -> bytes:
    """When, which prediction, and what happened: what comes together lies together in the store.

    Two predictions of one second that share the middle part are told apart by the last, which has all of both.
    """
    digest = hashlib.sha256(body + b"\0%c" % clicked + item).digest()
    return _WHEN.pack(fields.at, fields.nonce >> 32) + digest[:8]


def click_key(prediction_id: str, item: str) -> bytes | None:
    """What a click of an item is known by, whatever its event id; None where that is no prediction's id."""
    parts = opened(prediction_id)
    fields = None if parts is None else read(parts[0])
    if parts is None or fields is None:
        return None
    return _own_key(parts[0], fields, 1, item.encode("utf-8", "surrogatepass"))


def _item(value: object, fields: Fields) -> str:
    if type(value) is int:
        value = str(value)
    if type(value) is not str or not 0 < len(value) <= MAX_ITEM:
        raise BadEvent(("item_id",), f"must be a string of 1 to {MAX_ITEM} characters, or an integer", "item_id")
    if fields.rows:
        if not (value.isascii() and value.isdigit()):
            raise BadEvent(("item_id",), "a prediction in row form has its rows' indices as items", "item_id")
        return str(int(value)) if len(value) < 10 else value
    return value


def _check_timestamp(value: object) -> None:
    """When it happened is the sender's to know: what counts is when it was received."""
    if type(value) is int or (type(value) is float and isfinite(value)):
        return
    try:
        if type(value) is str and datetime.fromisoformat(value):
            return
    except ValueError:
        pass
    raise BadEvent(("timestamp",), "must be epoch seconds or ISO 8601", "timestamp")
