"""What signs prediction ids: HMAC-SHA256 with its two inner states prepared, and which of several keys signs.

From the environment, or made and kept in the state store, where they are renewed. A new key signs once every worker
has had the time to read it; the one before it goes on to be good.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Protocol

MAC_BYTES = 11
BLOCK = 64
SECRET_BYTES = 32
RENEW_SECONDS = 30 * 86400.0
# How long a new key is known before it signs; workers read the keys much more often.
SPREAD_SECONDS = 60.0


class KeyStore(Protocol):
    """The stored keys, inside one transaction; `service.state.Transaction` is one."""

    def signing_keys(self) -> list[tuple[float, bytes]]: ...
    def add_signing_key(self, secret: bytes) -> None: ...


class Key:
    """One secret. The copies of prepared hashes cost half of what `hmac.digest` does."""

    def __init__(self, secret: bytes) -> None:
        block = (hashlib.sha256(secret).digest() if len(secret) > BLOCK else secret).ljust(BLOCK, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))

    def mac(self, message: bytes) -> bytes:
        """The first 88 bits of the message's HMAC-SHA256."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()[:MAC_BYTES]


class Keyring:
    """The keys that are good, of which the first signs."""

    def __init__(self, secrets_: Sequence[bytes]) -> None:
        first, *others = (Key(secret) for secret in secrets_)
        self.mac, self._others = first.mac, others

    def signed(self, message: bytes, mac: bytes) -> bool:
        """Whether one of the keys gave this signature, compared in constant time."""
        if hmac.compare_digest(self.mac(message), mac):
            return True
        return any(hmac.compare_digest(key.mac(message), mac) for key in self._others)


def stored_keyring(store: KeyStore, now: float) -> Keyring:
    """The ring of the stored keys; makes the first key, and a new one where the newest is old."""
    keys = store.signing_keys()
    if not keys or now - keys[0][0] > RENEW_SECONDS:
        store.add_signing_key(secrets.token_bytes(SECRET_BYTES))
        keys = store.signing_keys()
    if len(keys) > 1 and now - keys[0][0] < SPREAD_SECONDS:
        keys.reverse()
    return Keyring([secret for _, secret in keys])
