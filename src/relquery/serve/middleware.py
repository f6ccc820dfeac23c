"""What happens to every request before and after its route: ids, access, limits, the log."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relquery.serve.access.gate import Asker
from relquery.serve.access.pages import Pages
from relquery.serve.answering import ClientGoneError
from relquery.serve.errors import HttpError, as_http, response_of, stopping
from relquery.serve.operation.served import NO_ROUTE, Served
from relquery.serve.operation.tracing import Tracing
from relquery.serve.server import Server

_LOG = logging.getLogger("relquery.serve.access")
OPEN_PATHS = ("/health", "/console")
"""Paths that need no key; and the console's page itself."""
REASONS = {"rate_limit_exceeded": "rate_limit"}
"""How metrics call an error's code where they call it differently."""
FIGURES = "/metrics"
"""Answered to the end, when nothing else is any more."""
PATIENCE = 600.0
"""Seconds in which a body must have come, however steadily it comes."""


class Front:
    """The outermost ASGI application. traces: where requests are told, if anywhere. patience:
    seconds in which a body must have come."""

    def __init__(
        self,
        app: ASGIApp,
        server: Server,
        traces: Tracing | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._app, self._server, self._traces = app, server, traces
        self._patience = patience
        self._pages = Pages(server.config.host, server.config.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Request(self._server, scope, receive, send, self._patience)
        waits = not _is_open(scope["path"]) and scope["path"] != FIGURES
        self._server.serving += waits
        try:
            self._check(scope, waits)
            await self._app(scope, request.receive, request.send)
        except Exception as error:  # the inner handlers have answered all that they foresee
            found = as_http(error)
            scope["state"]["error"] = found
            if found.status >= 500 and not isinstance(error, HttpError):
                _LOG.exception("request %s failed", request.id)
            if request.status is None:
                await response_of(found, scope, request.id)(scope, receive, request.send)
        finally:
            self._server.serving -= waits
            self._tell(request.served())

    def _check(self, scope: Scope, waits: bool) -> None:
        """Who asks, whether they may now, and whether the body is too large. Raises HttpError."""
        headers, state = scope["headers"], scope["state"]
        state["server"] = self._server
        self._pages.check(headers)
        if self._server.stopping and waits:
            raise stopping()
        if not _is_open(scope["path"]):
            state["asker"] = self._server.gate.asker(headers)
        most = self._server.config.max_body
        for name, value in headers:
            if name == b"content-length" and value.isdigit() and int(value) > most:
                raise _too_large(most)
            if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                raise _encoded(value)
        if scope["method"] == "POST" and "asker" in state:
            self._admit(state["asker"])

    def _admit(self, asker: Asker) -> None:
        """Whether a key's limits allow a request now. Raises HttpError."""
        if asker.account.rates is not None:
            asker.account.rates.admit()

    def _tell(self, served: Served) -> None:
        """Count, log and trace a request that has been served."""
        measures = self._server.measures
        tenant = "" if served.asker is None else served.asker.tenant
        measures.served(served.route, served.status, tenant, served.seconds)
        if served.status == 429:
            reason = served.error or ""
            measures.refused(REASONS.get(reason, reason), tenant)
        if served.error is not None:
            measures.failed(tenant, served.error)
        if _LOG.isEnabledFor(logging.INFO):
            _LOG.info("request", extra={"fields": served.fields(self._server.models[0])})
        if self._traces is not None:
            self._traces.served(served)


class _Request:
    """One request on its way. status: of its answer, None before that."""

    def __init__(
        self, server: Server, scope: Scope, receive: Receive, send: Send, patience: float
    ) -> None:
        self.id = _given_id(scope) or f"req_{secrets.token_hex(12)}"
        self.status: int | None = None
        self._scope, self._receive, self._send = scope, receive, send
        self._began, self._began_at = time.perf_counter(), time.time_ns()
        self._read, self._most = 0, server.config.max_body
        self._patience, self._is_whole = patience, False
        # The server's state is one for all requests; each gets its own.
        self._state: dict[str, Any] = {**scope.get("state", {}), "request_id": self.id}
        scope["state"] = self._state

    async def receive(self) -> Message:
        if self._is_whole:  # it is waited for the client to leave
            return await self._receive()
        left = self._began + self._patience - time.perf_counter()
        try:
            async with asyncio.timeout(left):
                message = await self._receive()
        except TimeoutError:
            raise _too_slow(self._patience) from None
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        self._is_whole = not message.get("more_body", False)
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            if self._read > self._most:
                raise _too_large(self._most)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            more = (each for each in self._headers() if each[0] not in names)
            message["headers"] = [*given, *more]
        await self._send(message)

    def served(self) -> Served:
        """What became of it."""
        error: HttpError | None = self._state.get("error")
        asker: Asker | None = self._state.get("asker")
        route = self._scope.get("route")
        word = None if asker is None else asker.account.error
        if error is not None:
            word = error.code or str(error.status)
        return Served(
            id=self.id,
            method=self._scope["method"],
            path=self._scope["path"],
            route=getattr(route, "path", NO_ROUTE),
            status=self.status or 499,
            began=self._began_at,
            seconds=time.perf_counter() - self._began,
            headers=self._scope["headers"],
            asker=asker,
            error=word,
        )

    def _headers(self) -> Sequence[tuple[bytes, bytes]]:
        """What every answer has."""
        found = {"x-request-id": self.id, "request-id": self.id}
        asker: Asker | None = self._state.get("asker")
        if asker is not None:
            found |= _figures(asker)
        return [(name.encode(), value.encode()) for name, value in found.items()]


def _figures(asker: Asker) -> dict[str, str]:
    """What is left of a key's limits, and how long the parts of a whole answer took."""
    found: dict[str, str] = {}
    account = asker.account
    if account.rates is not None:
        found |= account.rates.headers()
    if account.latency is not None:
        parts = (
            f"{part};dur={getattr(account.latency, part) * 1000:.3f}"
            for part in ("waiting", "core", "tail")
        )
        found["server-timing"] = ", ".join(parts)
    return found


def _is_open(path: str) -> bool:
    return path == "/" or path.startswith(OPEN_PATHS)


def _given_id(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and 0 < len(value) <= 100 and value.isascii():
            text: str = value.decode()
            return text if text.isprintable() else None
    return None


def _too_slow(seconds: float) -> HttpError:
    """The connection is closed, so that what is left of the body is not waited for either."""
    return HttpError(
        408,
        f"The request's body has not come in {seconds:g} seconds. Send it in parts.",
        "too_slow",
        headers={"connection": "close"},
    )


def _encoded(value: bytes) -> HttpError:
    return HttpError(
        415,
        f"The body is encoded ({value.decode('latin-1')}), and this server reads plain bodies. "
        "Send it as it is, without the header Content-Encoding.",
        "unsupported_encoding",
    )


def _too_large(most: int) -> HttpError:
    return HttpError(413, f"The request's body has more than {most:,} bytes.", "too_large")
