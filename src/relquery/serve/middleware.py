"""Steps of every request before and after its route: ids, access, limits, the log."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relquery.serve.bodies import HEADER
from relquery.serve.errors import HttpError, as_http, bad_request, response_of, stopping
from relquery.serve.logs import Tracing
from relquery.serve.server import RequestScope, Server
from relquery.serve.settings import is_local
from relquery.serve.streaming import ClientGoneError

_LOG = logging.getLogger("relquery.serve.access")
OPEN_PATHS = ("/health", "/console")
"""Paths that need no key; and the console's page itself."""
FIGURES = "/metrics"
"""Answered to the end, when nothing else is any more."""
NO_ROUTE = "other"
"""In place of a route: there are few of those, but any number of wrong paths."""
GONE = 499
"""The status where the client has left before there is one."""
LOCAL = ("localhost", "127.0.0.1", "::1")
_LEFT = [
    f"{part}-{of}" for of in ("requests", "tokens") for part in ("limit", "remaining", "reset")
]
EXPOSED = (
    *("x-request-id", "retry-after", "server-timing", "x-relquery-estimate"),
    *(f"x-ratelimit-{each}" for each in _LEFT),
)
PLAIN = ("", "identity")
"""Encodings of a body that is read."""


class RequestMiddleware:
    """The outermost ASGI application of ours. traces: where requests are told, if anywhere."""

    def __init__(self, app: ASGIApp, server: Server, traces: Tracing | None = None) -> None:
        self._app, self.server, self.traces = app, server, traces
        self._pages = Pages(server.config.host, server.config.origins or ())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Request(self, scope, receive, send)
        scope, server = request.scope, self.server
        waits = not _is_open(scope["path"]) and scope["path"] != FIGURES
        server.serving += waits
        try:
            self._check(scope, waits, request.receive)
            await self._app(scope, request.receive, request.send)
        except Exception as error:  # the inner handlers have answered all that they foresee
            http_error = as_http(error)
            scope["state"]["error"] = http_error
            if http_error.status >= 500 and not isinstance(error, HttpError):
                _LOG.exception("request %s failed", request.id)
            if request.status is None:
                await response_of(http_error, scope, request.id)(scope, receive, request.send)
        finally:
            server.serving -= waits
            seconds, asker = time.perf_counter() - request.began, request.asker
            tenant, status = "" if asker is None else asker.tenant, request.status or GONE
            server.metrics.served(request.route, status, tenant, seconds, request.error)
            if _LOG.isEnabledFor(logging.INFO):
                _LOG.info("request", extra={"fields": request.fields()})

    def _check(self, scope: Scope, waits: bool, receive: Receive) -> None:
        """Who asks, whether they may now, and whether the body is too large. Raises HttpError."""
        headers, state, server = Headers(scope=scope), scope["state"], self.server
        state["server"] = server
        self._pages.check(headers)
        if server.admission.stopping and waits:
            raise stopping()
        identity = None
        if not _is_open(scope["path"]):
            identity = server.gate.identify(headers)
            state["scope"] = RequestScope(server, identity, headers.getlist(HEADER), receive)
        if (length := headers.get("content-length", "")).isdigit():
            _check_size(int(length), server.config.max_body)
        if (encoding := headers.get("content-encoding", "").strip()).lower() not in PLAIN:
            raise HttpError(
                415,
                f"The body is encoded ({encoding}), and this server reads plain bodies. Send it as "
                "it is, without the header Content-Encoding.",
                "unsupported_encoding",
            )
        if scope["method"] == "POST" and identity is not None and identity.limits is not None:
            identity.limits.admit()


class _Request:
    """One request on its way, as logs and traces see it. scope: its route's. status: of its answer,
    None before that."""

    def __init__(
        self, middleware: RequestMiddleware, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self.id = _given_id(scope) or f"req_{secrets.token_hex(12)}"
        self.status: int | None = None
        self._middleware, self._receive, self._send = middleware, receive, send
        self.began, self._read, self._is_whole = time.perf_counter(), 0, False
        # The server's state is one for all requests; each gets its own.
        self._state: dict[str, Any] = {**scope.get("state", {}), "request_id": self.id}
        self._method = scope["method"]
        scope["state"] = self._state
        # HEAD is answered as a GET, whose body uvicorn does not send.
        self.scope = {**scope, "method": "GET"} if self._method == "HEAD" else scope

    @property
    def asker(self) -> RequestScope | None:
        """None for requests that need no key, and where it is not known who asks."""
        scope: RequestScope | None = self._state.get("scope")
        return scope

    @property
    def error(self) -> str | None:
        """A word for what went wrong."""
        error: HttpError | None = self._state.get("error")
        if error is not None:
            return error.code or str(error.status)
        return None if self.asker is None else self.asker.error

    @property
    def route(self) -> str:
        """Its template."""
        path: str = getattr(self.scope.get("route"), "path", NO_ROUTE)
        return path

    async def receive(self) -> Message:
        message = await self._receive()
        if self._is_whole:  # it is waited for the client to leave
            return message
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        self._is_whole = not message.get("more_body", False)
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            _check_size(self._read, self._middleware.server.config.max_body)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            more = (each for each in self._headers() if each[0] not in names)
            message["headers"] = [*given, *more]
        is_last = message["type"] == "http.response.body" and not message.get("more_body")
        if is_last and (traces := self._middleware.traces) is not None:
            traces.describe(self._method, self.route, self.fields(), self.asker)
        await self._send(message)

    def fields(self) -> dict[str, Any]:
        """For the log. It has nothing of prompts and answers but their sizes."""
        values: dict[str, Any] = {
            "request": self.id,
            "method": self._method,
            "path": self.scope["path"],
            "status": self.status or GONE,
            "seconds": round(time.perf_counter() - self.began, 6),
        }
        if self.error is not None:
            values["error"] = self.error
        if (asker := self.asker) is None:
            return values
        if asker.tenant:
            values |= {"tenant": asker.tenant, "key": asker.identity.name}
        if asker.prompts:
            values |= {name: getattr(asker, name) for name in _USED}
        if asker.first_token is not None:
            values["first_token"] = round(asker.first_token, 6)
        return values

    def _headers(self) -> list[tuple[bytes, bytes]]:
        """What every answer has; what is left of a key's limits, and how long the parts took."""
        headers = {"x-request-id": self.id, "request-id": self.id}
        asker = self.asker
        if asker is not None and asker.identity.limits is not None:
            headers |= asker.identity.limits.headers()
        if asker is not None and asker.latency is not None:
            took = asdict(asker.latency).items()
            headers["server-timing"] = ", ".join(f"{part};dur={s * 1000:.3f}" for part, s in took)
        return [(name.encode(), value.encode()) for name, value in headers.items()]


_USED = ("model", "prompts", "prompt_tokens", "cached_tokens", "output_tokens")


class Pages:
    """A guard against requests that a foreign web page sends with a visitor's browser.

    A page can have its own name point to a server on the visitor's machine (DNS rebinding), or send
    forms to it. Browsers tell both: by the Host header and the Origin header.
    host: where the server listens. origins: pages that may call it.
    """

    def __init__(self, host: str, origins: Collection[str]) -> None:
        self._names = {*LOCAL, host.strip("[]").lower()} if is_local(host) else None
        self._origins = frozenset(origins)

    def check(self, headers: Headers) -> None:
        """Raises HttpError for a request that is not for this server, or of a foreign page."""
        host, origin = _only("host", headers), _only("origin", headers)
        if self._names is not None and _name_of(host) not in self._names:
            raise bad_request(
                f"The Host header is '{host}'. This server only answers to its own names: "
                f"{', '.join(sorted(self._names))}.",
                code="wrong_host",
            )
        if origin and origin not in self._origins and origin.partition("://")[2] != host:
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


def _only(name: str, headers: Headers) -> str:
    """The value of a header that may be there once; "" if it is not. Raises HttpError."""
    values = headers.getlist(name)
    if len(values) > 1:  # which of them counts, two programs may see differently
        raise bad_request(
            f"The header '{name}' is given {len(values)} times. Send it once.",
            code="invalid_header",
        )
    return values[0].lower() if values else ""


def _name_of(host: str) -> str:
    """A Host header without its port, and without the brackets of an IPv6 address."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_open(path: str) -> bool:
    return path == "/" or path.startswith(OPEN_PATHS)


def _given_id(scope: Scope) -> str | None:
    first = Headers(scope=scope).get("x-request-id", "")
    is_good = 0 < len(first) <= 100 and first.isascii() and first.isprintable()
    return first if is_good else None


def _check_size(size: int, most: int) -> None:
    """Raises HttpError for a body of too many bytes."""
    if size > most:
        raise HttpError(413, f"The request's body has more than {most:,} bytes.", "too_large")
