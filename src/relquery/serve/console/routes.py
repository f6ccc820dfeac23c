"""The page at /, its files as they stand in the package, and the state that it shows."""

from __future__ import annotations

from dataclasses import asdict
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from relquery.backends.service.state import EngineState, OpenQuery
from relquery.serve.document import errors
from relquery.serve.errors import HttpError, Json
from relquery.serve.server import Server

router = APIRouter()

MOST_SHOWN = 100
"""Open relQueries, the earliest ones."""
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
        "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _File(NamedTuple):
    """A file of the page. tag: changes with its content."""

    content: bytes
    media_type: str
    tag: str


def _read() -> dict[str, _File]:
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


@router.get("/console/state", tags=["Console"], responses=errors(503))
async def console_state(request: Request) -> Response:
    """What the engine is doing now: requests, tokens, its cache and the open relQueries, by
    arrival; `more` says whether others of these are not listed. A tenant sees what concerns itself,
    and of the cache, which tells of the prompts of all, only how much it can hold."""
    server: Server = request.state.server
    # Paths of the console are open to all, but what is being asked is not.
    asker = server.gate.identify(request.scope["headers"])
    tenant = None if asker.operator else asker.tenant
    state: EngineState = await server.ask("state", MOST_SHOWN + 1, tenant)
    tally = server.link.tally if tenant is None else server.metrics.tally(tenant)
    sums = {name: getattr(tally, name) for name in ("answers", "prompt", "cached", "output")}
    held, cached = state.held, state.cached
    cache = {"held": held, "cached": cached, "free": state.cache_tokens - held - cached}
    waiting, running = state.waiting, state.running
    return Json(
        {
            "now": server.link.clock.now(),
            "models": server.models,
            "policy": server.facts.policy,
            "context": server.facts.context,
            "cache": {
                "tokens": state.cache_tokens,
                **(cache if tenant is None else dict.fromkeys(cache)),
            },
            "requests": {"open": waiting + running, "waiting": waiting, "running": running},
            "tokens": {**sums, "total": tally.prompt + tally.output},
            "queries": [_query(each) for each in state.queries[:MOST_SHOWN]],
            "more": len(state.queries) > MOST_SHOWN,
        }
    )


def _query(query: OpenQuery) -> dict[str, Any]:
    """Seconds: waited before its first prompt was begun, core until its last prompt was computed,
    tail since then, estimate until its last answer."""
    found = asdict(query)
    age, core = found.pop("age"), found.pop("computing")
    return found | {"core": core, "tail": max(0.0, age - query.waited - core)}


@router.get("/", include_in_schema=False)
async def page(request: Request) -> Response:
    """The console."""
    return await part("index.html", request)


@router.get("/console/{name}", include_in_schema=False)
async def part(name: str, request: Request) -> Response:
    """What the page is made of. Raises HttpError for what is not a part of it."""
    found = _FILES.get(name)
    if found is None:
        raise HttpError(404, f"The console has no file '{name}'.", "not_found")
    headers = {**_HEADERS, "ETag": found.tag}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)
