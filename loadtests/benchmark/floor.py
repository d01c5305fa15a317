"""Two ASGI applications that do next to nothing: what no Python server on the same HTTP library can be faster than."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

ANSWER = b'{"predictions":[0.5]}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]


async def constant(scope: Message, receive: Receive, send: Send) -> None:
    """Reads the body and answers a constant."""
    await _body(receive)
    await _answer(send)


async def parsing(scope: Message, receive: Receive, send: Send) -> None:
    """Also parses the body as JSON."""
    orjson.loads(await _body(receive))
    await _answer(send)


async def _body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        parts = [body]
        while message.get("more_body"):
            message = await receive()
            parts.append(message.get("body", b""))
        body = b"".join(parts)
    return body


async def _answer(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})
