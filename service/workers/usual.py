"""The usual request to /predict, told from its bytes alone: what may go past the parser of HTTP."""

from __future__ import annotations

import re
from functools import lru_cache

PREDICT = "/predict"
_HEAD = re.compile(rb"POST /predict HTTP/1\.1\r\n((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t -~]*\r\n)+)\r\n")
_LENGTH = re.compile(rb"[0-9]{1,8}")
_UNUSUAL = frozenset((b"expect", b"te", b"trailer", b"transfer-encoding", b"upgrade"))
# A gateway sends the same head again and again but for its body's length: so many of them are read once.
HEADS, HEAD_BYTES = 512, 1024


def usual_request(data: bytes) -> tuple[dict[bytes, bytes], bytes] | None:
    """(headers, body) of what is one whole HTTP/1.1 request to /predict and nothing more; None for what is not usual.

    What could end the connection or the body in another way, or wants to be asked first, is not usual; nor is what says
    a header twice. The headers are others' too: not to be changed.
    """
    end = data.find(b"\r\n\r\n") + 4
    found = _known_head(data[:end]) if end <= HEAD_BYTES else _head(data[:end])
    if found is None or found[1] != len(data) - end:
        return None
    return found[0], data[end:]


def _head(head: bytes) -> tuple[dict[bytes, bytes], int] | None:
    """(headers, length of the body) of a usual request's head."""
    match = _HEAD.fullmatch(head)
    if match is None:
        return None
    lines = match[1].split(b"\r\n")
    headers = {}
    for line in lines[:-1]:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip(b" \t")
    length = headers.get(b"content-length", b"")
    if len(headers) != len(lines) - 1 or not _LENGTH.fullmatch(length):
        return None
    if not _UNUSUAL.isdisjoint(headers) or headers.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    return headers, int(length)


_known_head = lru_cache(HEADS)(_head)
