"""Who may do what: the admin's token for changes, the client's for predictions."""

from __future__ import annotations

import hmac
import ipaddress
import logging
from urllib.parse import urlsplit

from service import logs
from service.config import Settings
from service.errors import Forbidden, Unauthorised
from service.metrics import Metrics

HOW = "set TWINRANK_ADMIN_TOKEN for the service and send 'Authorization: Bearer TOKEN'"


def check_admin(settings: Settings, metrics: Metrics, authorization: str | None, origin: str | None) -> str:
    """Who makes a change; Unauthorised or Forbidden where it may not be made.

    Without a token, changes are taken on a loopback address alone, and there from no foreign page of a browser.
    """
    if settings.admin_token is not None:
        if bears(authorization, settings.admin_token):
            return "admin"
        _refused(metrics, "admin", "wrong" if authorization else "missing")
        raise Unauthorised("changes need the admin token: Authorization: Bearer TOKEN")
    if not settings.loopback:
        _refused(metrics, "admin", "none set")
        raise Forbidden(f"changes are off: the service listens beyond this machine and has no admin token; {HOW}")
    if origin is not None and not _is_loopback(origin):
        _refused(metrics, "admin", "foreign origin")
        raise Forbidden(f"changes from a page of another site are off without an admin token; {HOW}")
    return "local"


def check_client(settings: Settings, metrics: Metrics, authorization: str | None) -> None:
    """Unauthorised where predictions need a token and this is not it; the admin's does not stand in for it."""
    if settings.client_token is None or bears(authorization, settings.client_token):
        return
    _refused(metrics, "client", "wrong" if authorization else "missing")
    raise Unauthorised("predictions need the client token: Authorization: Bearer TOKEN")


def bears(authorization: str | None, token: str) -> bool:
    """Whether an `Authorization` header carries this bearer token, compared in constant time."""
    scheme, _, given = (authorization or "").partition(" ")
    right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
    return scheme.lower() == "bearer" and right


def _refused(metrics: Metrics, what: str, token: str) -> None:
    metrics.rejected("auth")
    logs.event("refused for want of a token", level=logging.WARNING, needs=what, token=token)


def _is_loopback(origin: str) -> bool:
    try:
        host = urlsplit(origin).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
