"""How one event is judged, by a clock that a test sets."""

import pytest

from service.experiments.epochs import Epochs
from service.experiments.events import SKEW_SECONDS, Judge
from service.experiments.keys import Keyring
from service.experiments.samples import Sampler
from service.experiments.tickets import Issuer
from service.state import Document

RING = Keyring([b"a secret of the service"])
DOCUMENT = Document(epoch=7, weights={"v1": 90.0, "v2": 10.0}, default="v1", experiment="home")
MADE = 1_800_000_000.0
WINDOW = 3600.0


def prediction(document=DOCUMENT, version="v2", reason="split"):
    issuer = Issuer(Sampler(), lambda: MADE)
    issuer.keyring = RING
    return issuer.open(document, version, reason, "u1", rows=False).prediction_id


def judged(*ids, now=MADE, began=MADE - 100.0, document=DOCUMENT):
    epochs = Epochs(lambda number: (document.traffic(), began) if number == 7 else None)
    judge = Judge(lambda: RING, epochs, WINDOW, lambda: now)
    return judge([{"prediction_id": one, "type": "click", "item_id": "i1"} for one in ids])


def counts(found):
    return len(found.events), found.late, found.invalid


@pytest.mark.parametrize(("after", "late"), [(0.0, 0), (WINDOW, 0), (WINDOW + 1.0, 0), (WINDOW + 1.5, 1), (1e7, 1)])
def test_an_event_received_after_the_window_is_late(after, late):
    # To the second in which the prediction was made, the last moment of which counts.
    assert counts(judged(prediction(), now=MADE + after)) == (1 - late, late, 0)


def test_an_event_carries_what_its_prediction_was():
    (event,) = judged(prediction()).events
    found = event.prediction
    assert (found.version, found.epoch.experiment, found.epoch.number) == ("v2", "home", 7)
    assert found.propensity == pytest.approx(0.1)


@pytest.mark.parametrize("reason", ["default", "no_unit", "override"])
def test_what_the_split_did_not_choose_has_no_propensity(reason):
    (event,) = judged(prediction(reason=reason)).events
    assert event.prediction.propensity is None


def test_an_overridden_version_that_is_no_arm_is_told_by_name():
    (event,) = judged(prediction(version="v9", reason="override")).events
    assert event.prediction.version == "v9"


def test_an_epoch_that_began_after_the_id_was_made_is_another_of_the_same_number():
    assert counts(judged(prediction(), began=MADE + SKEW_SECONDS - 1)) == (1, 0, 0)
    assert counts(judged(prediction(), began=MADE + SKEW_SECONDS + 1)) == (0, 0, 1)


def test_an_epoch_that_is_not_in_the_history_is_invalid():
    other = Document(epoch=8, weights={"v1": 1.0}, default="v1")
    assert counts(judged(prediction(other, "v1"), prediction())) == (1, 0, 1)


def test_a_place_beyond_the_epoch_s_arms_is_invalid():
    assert counts(judged(prediction(), document=Document(weights={"v1": 1.0}, default="v1"))) == (0, 0, 1)


def test_another_document_of_the_same_epoch_has_its_own_arms():
    issuer = Issuer(Sampler(), lambda: MADE)
    issuer.keyring = RING
    set_back = Document(epoch=7, weights={"a": 1.0, "v2": 1.0}, default="v2", experiment="home")
    tickets = [issuer.open(one, "v2", "split", "u1", rows=False) for one in (DOCUMENT, set_back)]
    assert [ticket.epoch.arms for ticket in tickets] == [("v1", "v2"), ("a", "v2")]
