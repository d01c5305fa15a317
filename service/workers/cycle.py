"""One request and its answer, as uvicorn has it, but that a whole answer is written at once."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle


class Cycle(RequestResponseCycle):
    """Holds the head back until the body is there. Whatever is out of the ordinary goes uvicorn's way."""

    _head: Any = None

    async def send(self, message: Any) -> None:
        if self._head is None:
            if message["type"] == "http.response.start" and not self.response_started:
                self._head = message
            else:
                await super().send(message)
            return
        head, self._head = self._head, None
        if message["type"] == "http.response.start":  # the application failed before its first answer was out
            self._head = message
        elif message.get("more_body") or not self.write(head["status"], head["headers"], message.get("body", b"")):
            await super().send(head)
            await super().send(message)

    def write(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Write a plain answer of known length; False, with nothing done, where it is not one."""
        if self.disconnected or self.flow.write_paused or self.scope["method"] == "HEAD":
            return False
        lines = [b": ".join(header) for header in headers]
        block = b"\r\n".join(lines)
        if b"content-length: %d" % len(body) not in lines or b"connection" in block:
            return False
        if block.count(b"\n") != len(lines) - 1 or block.count(b"\r") != len(lines) - 1:
            return False  # a header that would end early
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        default = [b": ".join(header) for header in self.default_headers]
        end = b"\r\n\r\n" if self.keep_alive else b"\r\nconnection: close\r\n\r\n"
        self.transport.write(b"".join((STATUS_LINE[status], b"\r\n".join((*default, block)), end, body)))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True
