"""Who may do what, and that nobody's credential is written down."""

import pytest

from service.api.auth import bears, check_admin, check_client
from service.config import Settings
from service.errors import Forbidden, Unauthorised

TOKEN = "correct horse"


class Counts:
    def __init__(self):
        self.reasons = []

    def rejected(self, reason):
        self.reasons.append(reason)


@pytest.mark.parametrize("sent", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Bearer  {TOKEN} "])
def test_the_admin_token_makes_an_admin(sent):
    assert check_admin(Settings(admin_token=TOKEN, host="0.0.0.0"), Counts(), sent, None) == "admin"


@pytest.mark.parametrize("sent", [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer ü"])
def test_se03_anything_else_is_401_and_counted_even_on_loopback(sent):
    counts = Counts()
    with pytest.raises(Unauthorised):
        check_admin(Settings(admin_token=TOKEN), counts, sent, None)
    assert counts.reasons == ["auth"]


def test_se03_without_a_token_changes_are_taken_on_loopback():
    assert check_admin(Settings(), Counts(), None, None) == "local"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_se03_without_a_token_changes_beyond_loopback_say_how_to_set_one(host):
    counts = Counts()
    with pytest.raises(Forbidden, match="TWINRANK_ADMIN_TOKEN"):
        check_admin(Settings(host=host), counts, None, None)
    assert counts.reasons == ["auth"]


@pytest.mark.parametrize("origin", ["http://evil.example", "https://127.0.0.1.evil.example", "null", "http://["])
def test_a_page_of_another_site_may_change_nothing_on_loopback(origin):
    with pytest.raises(Forbidden):
        check_admin(Settings(), Counts(), None, origin)


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8080", "http://localhost:3000", "http://[::1]:8080"])
def test_a_page_of_this_machine_may(origin):
    assert check_admin(Settings(), Counts(), None, origin) == "local"


def test_predictions_are_open_without_a_client_token():
    check_client(Settings(), Counts(), None)


def test_se03_neither_token_stands_for_the_other():
    both = Settings(admin_token=TOKEN, client_token="client")
    with pytest.raises(Unauthorised):
        check_admin(both, Counts(), "Bearer client", None)
    with pytest.raises(Unauthorised):
        check_client(both, Counts(), f"Bearer {TOKEN}")
    check_client(both, Counts(), "Bearer client")


def test_se03_a_refusal_is_logged_without_the_credential(caplog):
    caplog.set_level("WARNING", logger="twinrank")
    with pytest.raises(Unauthorised):
        check_admin(Settings(admin_token=TOKEN), Counts(), "Bearer guessed-secret", None)
    [record] = caplog.records
    written = f"{record.message} {record.fields}"
    assert "admin" in written
    assert "guessed-secret" not in written
    assert TOKEN not in written


def test_an_empty_token_is_never_borne():
    assert not bears(None, "x")
    assert not bears("Bearer ", "x")
