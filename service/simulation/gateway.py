"""The part of a gateway that a simulation needs: JSON over HTTP, one kept connection a thread."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any
from urllib.parse import quote, urlsplit

TIMEOUT_SECONDS = 30.0


class GatewayError(Exception):
    """The service does not answer as a running one does: one plain line that says what it did."""


class Gateway:
    """A service at a URL, to be closed; methods may be called from any thread and raise GatewayError."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise GatewayError(f"{url!r} is not of the form http://HOST:PORT")
        self._url, self._host, self._port = url, parts.hostname, parts.port
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._local = threading.local()
        self._opened: list[http.client.HTTPConnection] = []

    def close(self) -> None:
        """Close the connections of all threads, those that are over too."""
        for connection in self._opened:
            connection.close()

    def models(self) -> dict[str, Any]:
        return self._call("GET", "/models")

    def schema(self, version: str) -> dict[str, Any]:
        """The feature schema of a version."""
        found = self._call("GET", f"/models/{quote(version)}")["schema"]
        if not isinstance(found, dict):
            raise GatewayError(f"the schema of version '{version}' cannot be read")
        return found

    def put_weights(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._call("PUT", "/models/weights", body)

    def predict(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._call("POST", "/predict", body)

    def feedback(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        return self._call("POST", "/feedback", {"events": events})

    def report(self, experiment: str) -> dict[str, Any]:
        return self._call("GET", f"/experiments/{quote(experiment)}")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        raw = None if body is None else json.dumps(body).encode()
        try:
            status, answer = self._send(method, path, raw)
        except (OSError, http.client.HTTPException) as error:
            raise GatewayError(f"{self._url} does not answer {path}: {error or type(error).__name__}") from None
        try:
            decoded = json.loads(answer)
        except ValueError:
            decoded = {"detail": answer[:200].decode("utf-8", "replace")}
        if not 200 <= status < 300 or not isinstance(decoded, dict):
            detail = decoded.get("detail") if isinstance(decoded, dict) else decoded
            raise GatewayError(f"{method} {path} was answered {status}: {detail}")
        return decoded

    def _send(self, method: str, path: str, raw: bytes | None) -> tuple[int, bytes]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._kind(self._host, self._port, timeout=TIMEOUT_SECONDS)
            self._opened.append(connection)
        try:
            connection.request(method, path, raw, self._headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except BaseException:
            connection.close()
            self._local.connection = None
            raise
