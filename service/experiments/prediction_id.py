"""Prediction ids: what an answer was, signed, in 40 characters that any worker can read by itself.

    1 byte   format, kept for joining, row form, reason
    1        the version's place among the epoch's arms in the order of their names; 255: its name follows the rest
    4        epoch, which tells the experiment, the arms and their propensities
    1        sub-bucket of the unit
    4        seconds since 1970
    8        nonce
    0 or 1 + length of the name, filled up with zeros so that base64 needs no padding
    11       HMAC-SHA256, cut

Never a user, and nothing a user's id could be found by: the sub-bucket is one of 256.
"""

from __future__ import annotations

import struct
from binascii import Error, a2b_base64, b2a_base64
from typing import NamedTuple

from service.experiments.keys import MAC_BYTES, Keyring

FORMAT = 1
INLINE = 255
REASONS = ("split", "default", "no_unit", "override")
_REASON = {reason: code for code, reason in enumerate(REASONS)}
_ROWS, _KEPT = 8, 16

_HEAD = struct.Struct(">BBIBIQ")
_SHORTEST = _HEAD.size + MAC_BYTES
_LONGEST_TEXT = 160
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")  # the other alphabet's two are no part of this one


class Fields(NamedTuple):
    """What an id holds. `name` is the version's where `place` is INLINE, else empty."""

    reason: str
    rows: bool  # row form: items are the rows' indices
    kept: bool  # its scores are kept, to be joined with its events
    place: int
    epoch: int
    sub: int
    at: int  # seconds since 1970
    nonce: int
    name: str = ""


def seal(keyring: Keyring, fields: Fields) -> tuple[str, bytes]:
    """(the id, the signed bytes that stand for the prediction everywhere else)."""
    reason, rows, kept, place, epoch, sub, at, nonce, name = fields
    flags = FORMAT << 5 | _REASON[reason] | (_ROWS if rows else 0) | (_KEPT if kept else 0)
    body = _HEAD.pack(flags, place, epoch, sub, at, nonce)
    if place == INLINE:
        text = name.encode()
        body += bytes((len(text),)) + text
        body += b"\0" * (-(len(body) + MAC_BYTES) % 3)
    sealed = b2a_base64(body + keyring.mac(body), newline=False).translate(_TO_URL)
    return sealed.decode("ascii"), body


def unseal(keyring: Keyring, text: str) -> bytes | None:
    """The signed bytes of an id; None where it is damaged or forged."""
    parts = opened(text)
    return parts[0] if parts is not None and keyring.signed(*parts) else None


def opened(text: str) -> tuple[bytes, bytes] | None:
    """(the bytes that are signed, what signs them), unchecked; None where it cannot be an id."""
    if len(text) > _LONGEST_TEXT or len(text) % 4:
        return None
    try:
        sealed = a2b_base64(text.encode("ascii").translate(_FROM_URL), strict_mode=True)
    except (Error, UnicodeEncodeError):
        return None
    if len(sealed) < _SHORTEST or len(sealed) % 3:
        return None
    return sealed[:-MAC_BYTES], sealed[-MAC_BYTES:]


def read(body: bytes) -> Fields | None:
    """What signed bytes say; None where they are of another format."""
    flags, place, epoch, sub, at, nonce = _HEAD.unpack_from(body)
    if flags >> 5 != FORMAT:
        return None
    name = body[_HEAD.size + 1 :][: body[_HEAD.size]].decode() if place == INLINE else ""
    return Fields(REASONS[flags & 7], bool(flags & _ROWS), bool(flags & _KEPT), place, epoch, sub, at, nonce, name)
