"""Which web pages may call a server from a browser, and under which names it is known."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from relquery.serve.errors import HttpError
from relquery.serve.settings import is_local

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


class Pages:
    """Refuses requests that a foreign web page sends with a visitor's browser.

    A page can have its own name point to a server on the visitor's machine (DNS rebinding), or send
    forms to it. Browsers tell both: by the Host header and the Origin header.
    host: where the server listens. origins: pages that may call it.
    """

    def __init__(self, host: str, origins: Collection[str]) -> None:
        self._names = {*LOCAL, host.strip("[]").lower()} if is_local(host) else None
        self._origins = frozenset(origins)

    def check(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Raises HttpError for a request that is not for this server, or of a foreign page."""
        host = _only(b"host", headers).lower()
        origin = _only(b"origin", headers)
        if self._names is not None and _name_of(host) not in self._names:
            raise HttpError(
                400,
                f"The Host header is '{host}'. This server only answers to its own names: "
                f"{', '.join(sorted(self._names))}.",
                "wrong_host",
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


def _only(wanted: bytes, headers: Sequence[tuple[bytes, bytes]]) -> str:
    """The value of a header that may be there once; "" if it is not. Raises HttpError."""
    found = [value.decode("latin-1") for name, value in headers if name == wanted]
    if len(found) > 1:  # which of them counts, two programs may see differently
        raise HttpError(
            400,
            f"The header '{wanted.decode()}' is given {len(found)} times. Send it once.",
            "invalid_header",
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
