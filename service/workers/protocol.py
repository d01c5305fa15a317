"""HTTP/1.1 as uvicorn speaks it through httptools, with less work for each request and bounds that it lacks.

Offers to upgrade are ignored, heads are bounded, an answer's head and body are written as one, and a connection has
one timer for its quiet time instead of one for each answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.api.answers import Reply
from service.api.body import ClientGone
from service.api.fast_path import Waiting
from service.api.predict import Predict
from service.workers.cycle import Cycle
from service.workers.usual import PREDICT, usual_request

# A request line and headers beyond this are no request of a gateway's.
MAX_HEAD = 64 * 1024

_START = re.compile(rb"(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS) ")
_OFFER = re.compile(rb"\r\n(?:upgrade|http2-settings):[^\r\n]*", re.IGNORECASE)
_CONNECTION = re.compile(rb"\r\nconnection:[^\r\n]*\bupgrade\b[^\r\n]*", re.IGNORECASE)
_PLAIN_PATH = re.compile(rb"/[a-z/]*")
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\ncontent-length: 55\r\n"
    b'connection: close\r\n\r\n{"detail":"the request line and headers are too large"}'
)


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = self._ended = False
        self._quiet_since: float | None = None
        self._not_begun: Cycle | None = None
        self._waiting: Waiting | None = None  # what the fast path has not answered yet
        self._held = b""  # what came behind it
        self._ends = False
        self.on_lost: Callable[[], None] | None = None

    def data_received(self, data: bytes) -> None:
        if self._waiting is not None:
            # A request that did not wait for its answer is answered in turn.
            self._held += data
            self.flow.pause_reading()
            return
        if self._taken(data):
            return
        self._ended = False
        super().data_received(without_upgrade(data))
        if self._not_begun is not None:
            self._begin(self._not_begun)
        if not self._in_head or self._ended:
            # What came behind the end of another request is less than was read at once: it is not counted.
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._ended = True
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        """As uvicorn's, which names its own class of cycles and takes every path apart."""
        self._in_head = False
        version = self.parser.get_http_version()
        self._complete_scope(version)
        before = self.cycle
        self.cycle = Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:
            self._not_begun = self.cycle  # until all that came with its head is read
        else:
            # Requests that did not wait for an answer are answered in turn.
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._quiet_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._wait_while_quiet(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has been quiet for too long; look again later where it was not."""
        self.timeout_keep_alive_task = None
        quiet = 0.0 if self._quiet_since is None else self.loop.time() - self._quiet_since
        if quiet < self.timeout_keep_alive:
            self._wait_while_quiet(self.timeout_keep_alive - quiet)
        elif not self.transport.is_closing():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._waiting is not None:
            self._waiting.set_exception(ClientGone())
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        if self.on_lost is not None:
            self.on_lost()

    def shutdown(self) -> None:
        """The server ends: so does the connection, once what was taken is answered."""
        if self._waiting is None:
            super().shutdown()
        else:
            self._ends = True

    def _begin(self, cycle: Cycle) -> None:
        """Hand a request to the application, or turn it away where that is known to have no time for it."""
        self._not_begun = None
        if not cycle.more_body and cycle.scope["path"] == PREDICT and cycle.scope["method"] == "POST":
            predict: Predict = self.app_state["predict"]
            refusal = predict.turn_away(dict(cycle.scope["headers"]))
            if refusal is not None and cycle.write(refusal.status, refusal.headers, refusal.body):
                return
        self._start_asgi_task(cycle, self.app)

    def _taken(self, data: bytes) -> bool:
        """Take a usual request that came in one piece past the parser, which waits between two requests as it did
        before; refuse it where there is no time for it. Most of an overload is refusals: they must cost little.
        """
        cycle = self.cycle
        if self._in_head or self.flow.write_paused:
            return False
        if cycle is not None and (cycle.more_body or not cycle.response_complete):
            return False  # this may be the rest of a body
        predict: Predict | None = self.app_state.get("predict")
        request = None if predict is None else usual_request(data)
        if predict is None or request is None:
            return False
        refusal = predict.turn_away(request[0])
        if refusal is not None:
            self._answer(refusal)
            return True
        waiting = predict.take(*request, self._answer)
        if waiting is None:
            return False
        self._unset_keepalive_if_required()
        self._waiting = None if waiting.done() else waiting
        return True

    def _answer(self, reply: Reply | None) -> None:
        """Write the reply to what was taken, and go on with what came behind it."""
        self._waiting = None
        if reply is None or self.transport.is_closing():
            return
        end = b"connection: close\r\n\r\n" if self._ends else b"\r\n"
        default = _lines(tuple(self.server_state.default_headers))
        self.transport.write(b"".join((STATUS_LINE[reply.status], default, reply.head, end, reply.body)))
        if self._ends:
            self.transport.close()
        self.on_response_complete()
        if self._held and not self._ends:
            data, self._held = self._held, b""
            self.data_received(data)

    def _unset_keepalive_if_required(self) -> None:
        self._quiet_since = None

    def _wait_while_quiet(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _complete_scope(self, version: str) -> None:
        scope = self.scope
        scope["method"] = self.parser.get_method().decode("ascii")
        if version != "1.1":
            scope["http_version"] = version
        path, query = self.url, b""
        if not _PLAIN_PATH.fullmatch(path):
            parsed = httptools.parse_url(path)
            path, query = parsed.path, parsed.query or b""
        text = path.decode("ascii")
        scope["path"] = self.root_path + (unquote(text) if "%" in text else text)
        scope["raw_path"] = self.root_path.encode("ascii") + path
        scope["query_string"] = query


@lru_cache(1)  # they change once a second
def _lines(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


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
