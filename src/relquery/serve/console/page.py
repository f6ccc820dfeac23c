"""The page's files: HTML, style sheets and scripts as they stand in the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.responses import Response

from relquery.serve.errors import HttpError

router = APIRouter(include_in_schema=False)

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the page. tag: changes with its content."""

    content: bytes
    media_type: str
    tag: str


def _read() -> Mapping[str, _File]:
    """All files, by name. Clients name one of these, never a path."""
    found = {}
    for each in files(__package__).joinpath("static").iterdir():
        suffix = each.name[each.name.rfind(".") :]
        if suffix in _TYPES:
            content = each.read_bytes()
            tag = f'"{sha256(content).hexdigest()[:16]}"'
            found[each.name] = _File(content, _TYPES[suffix], tag)
    return found


_FILES = _read()


@router.get("/")
async def page(request: Request) -> Response:
    """The console."""
    return _answer(_FILES["index.html"], request)


@router.get("/console/{name}")
async def part(name: str, request: Request) -> Response:
    """What the page is made of. Raises HttpError for what is not a part of it."""
    found = _FILES.get(name)
    if found is None:
        raise HttpError(404, f"The console has no file '{name}'.", "not_found")
    return _answer(found, request)


def _answer(found: _File, request: Request) -> Response:
    headers = {**_HEADERS, "ETag": found.tag}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)
