"""What happens to every request before and after its route: ids, access, limits, the log."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relquery.serve.body import HEADER
from relquery.serve.errors import HttpError, as_http, bad_request, response_of, stopping
from relquery.serve.logs import Served, Tracing
from relquery.serve.server import RequestScope, Server
from relquery.serve.settings import is_local
from relquery.serve.streaming import ClientGoneError

_LOG = logging.getLogger("relquery.serve.access")
OPEN_PATHS = ("/health", "/console")
"""Paths that need no key; and the console's page itself."""
FIGURES = "/metrics"
"""Answered to the end, when nothing else is any more."""
PATIENCE = 600.0
"""Seconds in which a body must have come, however steadily it comes."""
NO_ROUTE = "other"
"""In place of a route: there are few of those, but any number of wrong paths."""
LOCAL = ("localhost", "127.0.0.1", "::1")
EXPOSED = (
    "x-request-id",
    "retry-after",
    "server-timing",
    "x-relquery-estimate",
    *(
        f"x-ratelimit-{what}-{of}"
        for what in ("limit", "remaining", "reset")
        for of in ("requests", "tokens")
    ),
)
Headers = Sequence[tuple[bytes, bytes]]


class RequestMiddleware:
    """The outermost ASGI application of ours. traces: where requests are told, if anywhere.
    patience: seconds in which a body must have come."""

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
        request = _Request(self._server, scope, receive, send, self._patience, self._traces)
        if scope["method"] == "HEAD":  # answered as a GET, whose body uvicorn does not send
            scope = {**scope, "method": "GET"}
            request.scope = scope
        waits = not _is_open(scope["path"]) and scope["path"] != FIGURES
        self._server.serving += waits
        try:
            self._check(scope, waits, request.receive)
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

    def _check(self, scope: Scope, waits: bool, receive: Receive) -> None:
        """Who asks, whether they may now, and whether the body is too large. Raises HttpError."""
        headers, state = scope["headers"], scope["state"]
        state["server"] = self._server
        self._pages.check(headers)
        if self._server.admission.stopping and waits:
            raise stopping()
        identity = None
        if not _is_open(scope["path"]):
            identity = self._server.gate.identify(headers)
            declared = [value.decode("latin-1") for name, value in headers if name == _DECLARED]
            state["scope"] = RequestScope(self._server, identity, declared, receive)
        most = self._server.config.max_body
        for name, value in headers:
            if name == b"content-length" and value.isdigit() and int(value) > most:
                raise _too_large(most)
            if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                raise HttpError(
                    415,
                    f"The body is encoded ({value.decode('latin-1')}), and this server reads plain "
                    "bodies. Send it as it is, without the header Content-Encoding.",
                    "unsupported_encoding",
                )
        if scope["method"] == "POST" and identity is not None and identity.limits is not None:
            identity.limits.admit()

    def _tell(self, served: Served) -> None:
        """Count and log a request that has been served."""
        tenant = "" if served.asker is None else served.asker.tenant
        self._server.metrics.served(
            served.route, served.status, tenant, served.seconds, served.error
        )
        if _LOG.isEnabledFor(logging.INFO):
            _LOG.info("request", extra={"fields": served.fields()})


_DECLARED = HEADER.encode()


class _Request:
    """One request on its way. status: of its answer, None before that. scope: its route's."""

    def __init__(
        self,
        server: Server,
        scope: Scope,
        receive: Receive,
        send: Send,
        patience: float,
        traces: Tracing | None,
    ) -> None:
        self.id = _given_id(scope) or f"req_{secrets.token_hex(12)}"
        self.status: int | None = None
        self.scope, self._receive, self._send = scope, receive, send
        self._traces, self._method = traces, scope["method"]
        self._began = time.perf_counter()
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
        is_last = message["type"] == "http.response.body" and not message.get("more_body")
        if self._traces is not None and is_last:
            self._traces.describe(self.served())
        await self._send(message)

    def served(self) -> Served:
        """What became of it."""
        error: HttpError | None = self._state.get("error")
        asker: RequestScope | None = self._state.get("scope")
        word = None if asker is None else asker.error
        if error is not None:
            word = error.code or str(error.status)
        return Served(
            id=self.id,
            method=self._method,
            path=self.scope["path"],
            route=getattr(self.scope.get("route"), "path", NO_ROUTE),
            status=self.status or 499,
            seconds=time.perf_counter() - self._began,
            asker=asker,
            error=word,
        )

    def _headers(self) -> Headers:
        """What every answer has; what is left of a key's limits, and how long the parts took."""
        found = {"x-request-id": self.id, "request-id": self.id}
        asker: RequestScope | None = self._state.get("scope")
        if asker is not None and asker.identity.limits is not None:
            found |= asker.identity.limits.headers()
        if asker is not None and asker.latency is not None:
            took = asdict(asker.latency).items()
            found["server-timing"] = ", ".join(f"{part};dur={s * 1000:.3f}" for part, s in took)
        return [(name.encode(), value.encode()) for name, value in found.items()]


class Pages:
    """Refuses requests that a foreign web page sends with a visitor's browser.

    A page can have its own name point to a server on the visitor's machine (DNS rebinding), or send
    forms to it. Browsers tell both: by the Host header and the Origin header.
    host: where the server listens. origins: pages that may call it.
    """

    def __init__(self, host: str, origins: Collection[str]) -> None:
        self._names = {*LOCAL, host.strip("[]").lower()} if is_local(host) else None
        self._origins = frozenset(origins)

    def check(self, headers: Headers) -> None:
        """Raises HttpError for a request that is not for this server, or of a foreign page."""
        host = _only(b"host", headers).lower()
        origin = _only(b"origin", headers)
        if self._names is not None and _name_of(host) not in self._names:
            raise bad_request(
                f"The Host header is '{host}'. This server only answers to its own names: "
                f"{', '.join(sorted(self._names))}.",
                code="wrong_host",
            )
        if origin and origin not in self._origins and _host_of(origin) != host:
            raise HttpError(
                403,
                f"Pages of {origin} may not call this server. Start it with --origin {origin} to "
                "allow it.",
                "origin_not_allowed",
            )


def with_cors(app: ASGIApp, origins: Collection[str]) -> ASGIApp:
    """The application with the headers that let browsers call it from other pages (CORS)."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=sorted(origins),
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=EXPOSED,
        max_age=600,
    )


def _only(wanted: bytes, headers: Headers) -> str:
    """The value of a header that may be there once; "" if it is not. Raises HttpError."""
    found = [value.decode("latin-1") for name, value in headers if name == wanted]
    if len(found) > 1:  # which of them counts, two programs may see differently
        raise bad_request(
            f"The header '{wanted.decode()}' is given {len(found)} times. Send it once.",
            code="invalid_header",
        )
    return found[0] if found else ""


def _host_of(origin: str) -> str | None:
    """None for what is not an address."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _name_of(host: str) -> str:
    """A Host header without its port, and without the brackets of an IPv6 address."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


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


def _too_large(most: int) -> HttpError:
    return HttpError(413, f"The request's body has more than {most:,} bytes.", "too_large")
