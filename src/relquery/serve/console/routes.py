"""The page at /, its files as they stand in the package, and the state that it shows."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from relquery.backends.service.state import EngineState, OpenQuery
from relquery.serve.document import errors
from relquery.serve.errors import Json
from relquery.serve.server import Server

router = APIRouter()

MOST_SHOWN = 100
"""Open relQueries, the earliest ones."""
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
        "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageFiles(StaticFiles):
    """The files of the page, which may load no others."""

    def file_response(self, *given: Any, **more: Any) -> Response:
        """One of them."""
        response = super().file_response(*given, **more)
        response.headers.update(_HEADERS)
        return response


_FILES = PageFiles(packages=[("relquery.serve.console", "static")])


@router.get("/console/state", tags=["Console"], responses=errors(503))
async def console_state(request: Request) -> Response:
    """What the engine is doing now: requests, tokens, its cache and the open relQueries, by
    arrival; `more` says whether others of these are not listed. A tenant sees what concerns itself,
    and of the cache, which tells of the prompts of all, only how much it can hold."""
    server: Server = request.state.server
    # Paths of the console are open to all, but what is being asked is not.
    asker = server.gate.identify(request.scope["headers"])
    tenant = None if asker.operator else asker.tenant
    state: EngineState = await server.state(MOST_SHOWN + 1, tenant)
    links, facts = [each.link for each in server.engines], server.model(None).facts
    tallies = [each.tally for each in links] if tenant is None else [server.metrics.tally(tenant)]
    sums = {
        name: sum(getattr(each, name) for each in tallies)
        for name in ("answers", "prompt", "cached", "output")
    }
    held, cached = state.held, state.cached
    cache = {"held": held, "cached": cached, "free": state.cache_tokens - held - cached}
    waiting, running = state.waiting, state.running
    return Json(
        {
            "now": links[0].clock.now(),
            "models": server.models,
            "policy": facts.policy,
            "context": facts.context,
            "cache": {
                "tokens": state.cache_tokens,
                **(cache if tenant is None else dict.fromkeys(cache)),
            },
            "requests": {"open": waiting + running, "waiting": waiting, "running": running},
            "tokens": {**sums, "total": sums["prompt"] + sums["output"]},
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
    """What the page is made of."""
    return await _FILES.get_response(name, request.scope)
