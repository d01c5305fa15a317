"""HTTP/1.1 as uvicorn speaks it through httptools, but that offers to upgrade are ignored and heads are bounded."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# A request line and headers beyond this are no request of a gateway's.
MAX_HEAD = 64 * 1024

_START = re.compile(rb"(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS) ")
_OFFER = re.compile(rb"\r\n(?:upgrade|http2-settings):[^\r\n]*", re.IGNORECASE)
_CONNECTION = re.compile(rb"\r\nconnection:[^\r\n]*\bupgrade\b[^\r\n]*", re.IGNORECASE)
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\ncontent-length: 55\r\n"
    b'connection: close\r\n\r\n{"detail":"the request line and headers are too large"}'
)


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = False
        self.on_lost: Callable[[], None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        super().data_received(without_upgrade(data))
        if not self._in_head:
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()


def without_upgrade(data: bytes) -> bytes:
    """Drop the offer of HTTP/2 that some clients put into their first request (RFC 9110, 7.8: a server may ignore it).

    The parser would stop at such a head and lose the body. Only a head that arrives in one piece is looked at.
    """
    if b"pgrade" not in data[:MAX_HEAD] or not _START.match(data):
        return data
    head, end, body = data.partition(b"\r\n\r\n")
    if not end or b"h2c" not in head.lower():
        return data
    return _CONNECTION.sub(b"", _OFFER.sub(b"", head)) + end + body
