"""The socket that all workers share."""

from __future__ import annotations

import errno
import socket

from service.config import Settings
from service.workers.seats import StartError


def bind(settings: Settings) -> socket.socket:
    """A listening socket of the settings' address, non-blocking; StartError where it cannot be had."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise StartError(f"--host: cannot use '{settings.host}': {error.strerror or error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Listening already here claims the port: two sockets that are merely bound could share it.
        listener.listen(2048)
    except OSError as error:
        listener.close()
        option = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        raise StartError(f"{option}: cannot listen on {settings.host}:{settings.port}: {error.strerror}") from None
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
