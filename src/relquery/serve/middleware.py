"""What happens to every request before and after its route: ids, access, limits, the log."""

from __future__ import annotations

import logging
import secrets
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relquery.serve.errors import HttpError, as_http, response_of
from relquery.serve.server import Server

_LOG = logging.getLogger("relquery.serve.access")
OPEN_PATHS = ("/health", "/console")
"""Paths that need no key; and the console's page itself."""


class Front:
    """The outermost ASGI application. server: None until it has started."""

    def __init__(self, app: ASGIApp, server: Server) -> None:
        self._app, self._server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Request(self._server, scope, receive, send)
        try:
            self._check(scope)
            await self._app(scope, request.receive, request.send)
        except Exception as error:  # the inner handlers have answered all that they foresee
            found = as_http(error)
            if found.status >= 500:
                _LOG.exception("request %s failed", request.id)
            if request.status is None:
                await response_of(found, scope["path"], request.id)(scope, receive, request.send)
        finally:
            request.log()

    def _check(self, scope: Scope) -> None:
        """Who asks, and whether the body is too large. Raises HttpError."""
        headers = scope["headers"]
        path = scope["path"]
        scope["state"]["server"] = self._server
        if path != "/" and not path.startswith(OPEN_PATHS):
            scope["state"]["asker"] = self._server.gate.asker(headers)
        most = self._server.config.max_body
        for name, value in headers:
            if name == b"content-length" and value.isdigit() and int(value) > most:
                raise _too_large(most)


class _Request:
    """One request on its way. status: of its answer, None before that."""

    def __init__(self, server: Server, scope: Scope, receive: Receive, send: Send) -> None:
        self.id = _given_id(scope) or f"req_{secrets.token_hex(12)}"
        self.status: int | None = None
        self._scope, self._receive, self._send = scope, receive, send
        self._began, self._read, self._most = time.perf_counter(), 0, server.config.max_body
        scope.setdefault("state", {})["request_id"] = self.id

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            if self._read > self._most:
                raise _too_large(self._most)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", self.id.encode()),
                (b"request-id", self.id.encode()),
            ]
        await self._send(message)

    def log(self) -> None:
        if not _LOG.isEnabledFor(logging.INFO):
            return
        fields: dict[str, Any] = {
            "request": self.id,
            "method": self._scope["method"],
            "path": self._scope["path"],
            "status": self.status,
            "seconds": round(time.perf_counter() - self._began, 6),
        }
        _LOG.info("%(method)s %(path)s %(status)s", fields, extra={"fields": fields})


def _given_id(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and 0 < len(value) <= 100 and value.isascii():
            text: str = value.decode()
            return text if text.isprintable() else None
    return None


def _too_large(most: int) -> HttpError:
    return HttpError(413, f"The request's body has more than {most:,} bytes.", "too_large")
