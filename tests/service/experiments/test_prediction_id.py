"""Prediction ids: signed, short, read by any worker, never about a user."""

import base64
import hmac
import random

import pytest

from service.experiments.keys import RENEW_SECONDS, SPREAD_SECONDS, Key, Keyring, stored_keyring
from service.experiments.prediction_id import INLINE, Fields, read, seal, unseal
from service.experiments.samples import Sampler
from service.experiments.tickets import Issuer
from service.state import Document

RING = Keyring([b"a secret of the service"])
FIELDS = Fields("split", False, True, 1, 7, 200, 1_800_000_000, 2**63 + 5)


def document(**more):
    return Document(**{"epoch": 7, "weights": {"v2": 10.0, "v1": 90.0}, "default": "v1", "experiment": "home", **more})


def ticket(version="v2", reason="split", unit="u1", now=1_800_000_000.0, **more):
    issuer = Issuer(Sampler(), lambda: now)
    issuer.keyring = RING
    return issuer.open(document(**more), version, reason, unit, rows=False)


def opened(text, ring=RING):
    body = unseal(ring, text)
    return None if body is None else read(body)


def test_an_id_is_40_characters_that_need_no_escape_in_a_url():
    text, _ = seal(RING, FIELDS)
    assert len(text) == 40
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@pytest.mark.parametrize("reason", ["split", "default", "no_unit", "override"])
@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("name", ["", "a", "ab", "abc", "x" * 64])
def test_an_id_says_what_it_was_made_of(reason, rows, name):
    fields = FIELDS._replace(reason=reason, rows=rows, place=INLINE if name else 0, name=name)
    assert opened(seal(RING, fields)[0]) == fields


def test_the_signature_is_hmac_sha256_cut_to_88_bits():
    text, body = seal(RING, FIELDS)
    sealed = base64.urlsafe_b64decode(text)
    assert sealed == body + hmac.digest(b"a secret of the service", body, "sha256")[:11]


def test_a_secret_longer_than_a_block_is_hashed_first_as_hmac_has_it():
    assert Key(b"s" * 100).mac(b"m") == hmac.digest(b"s" * 100, b"m", "sha256")[:11]


def test_every_damaged_character_is_found():
    text, _ = seal(RING, FIELDS)
    others = {n: "A" if text[n] != "A" else "B" for n in range(len(text))}
    assert [n for n in others if opened(text[:n] + others[n] + text[n + 1 :]) is not None] == []


@pytest.mark.parametrize(
    "text",
    ["", "x", "=" * 40, "A" * 40, "A" * 39, "A" * 4000, "é" * 40, "/" * 40, "\ud800" * 40, " " * 40, "A" * 38 + "=="],
)
def test_what_is_no_id_is_none(text):
    assert opened(text) is None


def test_cut_or_lengthened_ids_are_none():
    text, _ = seal(RING, FIELDS)
    assert [opened(one) for one in (text[:-4], text[4:], text + "AAAA", text + "=", text + "\n")] == [None] * 5


def test_an_id_in_the_other_base64_alphabet_is_none():
    texts = [seal(RING, FIELDS._replace(nonce=n))[0] for n in range(100)]
    text = next(text for text in texts if "-" in text or "_" in text)
    assert opened(text) is not None
    assert opened(text.replace("-", "+").replace("_", "/")) is None


def test_random_bytes_are_never_an_id():
    rng = random.Random(5)
    texts = [base64.urlsafe_b64encode(rng.randbytes(30)).decode() for _ in range(20_000)]
    assert [text for text in texts if unseal(RING, text) is not None] == []


def test_a_stranger_s_secret_signs_nothing():
    assert opened(seal(Keyring([b"another"]), FIELDS)[0]) is None


def test_the_previous_key_goes_on_to_be_good():
    text, _ = seal(RING, FIELDS)
    assert opened(text, Keyring([b"a newer secret", b"a secret of the service"])) == FIELDS
    assert opened(text, Keyring([b"a newer secret"])) is None


def test_an_arm_is_named_by_its_place_among_the_epoch_s_arms():
    assert [ticket(version).fields.place for version in ("v1", "v2")] == [0, 1]


def test_an_overridden_version_outside_the_split_is_named_in_the_id():
    fields = opened(ticket("v9", "override").prediction_id)
    assert (fields.name, fields.reason, fields.place) == ("v9", "override", INLINE)


def test_an_id_carries_epoch_and_time():
    fields = opened(ticket(now=1_800_000_123.9).prediction_id)
    assert (fields.epoch, fields.at) == (7, 1_800_000_123)


def test_two_ids_of_one_request_differ():
    assert ticket().prediction_id != ticket().prediction_id


def test_what_is_not_in_the_statistics_has_no_sub_bucket():
    subs = {reason: {ticket("v1", reason, f"u{n}").fields.sub for n in range(50)} for reason in ("default", "override")}
    assert subs == {"default": {0}, "override": {0}}
    assert len({ticket("v1", "split", f"u{n}").fields.sub for n in range(50)}) > 30


class Store:
    def __init__(self, *keys):
        self.keys = list(keys)

    def signing_keys(self):
        return self.keys[:2]

    def add_signing_key(self, secret):
        self.keys.insert(0, (1000.0, secret))


def test_the_first_key_is_made_by_whoever_needs_one():
    store = Store()
    text, _ = seal(stored_keyring(store, 1000.0), FIELDS)
    assert opened(text, stored_keyring(store, 1001.0)) == FIELDS


def test_a_key_is_renewed_and_signs_once_all_have_read_it():
    store = Store((1000.0 - RENEW_SECONDS - 1, b"old"))
    before = seal(stored_keyring(store, 1000.0), FIELDS)[0]
    assert opened(before, Keyring([b"old"])) == FIELDS
    after = seal(stored_keyring(store, 1000.0 + SPREAD_SECONDS), FIELDS)[0]
    assert opened(after, Keyring([b"old"])) is None
    assert opened(before, stored_keyring(store, 1000.0 + SPREAD_SECONDS)) == FIELDS
