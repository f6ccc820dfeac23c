"""/health: whether the server lives and takes requests. /v1/models, in OpenAI's form, or in
Anthropic's for those who send its header. /metrics: figures for Prometheus. The console at /, its
files as they stand in the package, and the state that it shows."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

from relquery.backends.local.state import EngineState, OpenQuery
from relquery.serve.bodies import Cursor, Limit, instant, page_of
from relquery.serve.errors import HttpError, Json, is_anthropic
from relquery.serve.server import Scope, Server

router = APIRouter(tags=["Operation"])
PATIENCE = 2.0
"""Seconds that the engine has to tell its state: it does so between two steps."""
_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"description": "It takes no requests now", "content": {"application/json": {}}}
}


@router.get("/health/live")
async def is_live(request: Request) -> Response:
    """200 as long as the server answers at all."""
    return _health(request.state.server, always=True)


@router.get("/health", responses=_NOT_READY)
@router.get("/health/ready", responses=_NOT_READY)
async def is_ready(request: Request) -> Response:
    """200 while the server takes requests, else 503. `status` is "ok"; "starting" while an engine's
    process loads its model again; "stopping" once the server was told to stop."""
    return _health(request.state.server)


def _health(server: Server, *, always: bool = False) -> Response:
    status = "ok" if server.is_ready else "starting"
    if server.admission.stopping or any(each.link.closed for each in server.engines):
        status = "stopping"
    return Json(
        {"status": status, "model": server.models[0]}, 200 if always or status == "ok" else 503
    )


@router.get("/metrics", response_class=PlainTextResponse)
async def show_metrics(scope: Scope) -> Response:
    """Figures of all tenants in Prometheus' text form."""
    server = scope.server
    if not scope.identity.operator:
        raise HttpError(
            403, "Metrics are for keys made with `relquery keys add --operator`.", "no_operator"
        )
    state, opened = await _state(server), server.admission.open
    starts = sum(each.link.starts - 1 for each in server.engines)
    page = server.metrics.page(opened, server.serving, state, starts)
    return Response(page, media_type=CONTENT_TYPE_PLAIN_0_0_4)


async def _state(server: Server) -> EngineState | None:
    """The engine's state without forecasts; None where it does not tell in time."""
    if not server.is_ready:
        return None
    try:
        return await asyncio.wait_for(server.state(0), PATIENCE)
    except Exception:
        return None


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
"""Of the files of the page, which may load no others."""
_FILES = StaticFiles(packages=[("relquery.serve", "console")])


@router.get("/console/state")
async def console_state(request: Request) -> Response:
    """What the engine is doing now: requests, tokens, its cache and the open relQueries, by
    arrival; `more` says whether others of these are not listed. A tenant sees what concerns itself,
    and of the cache, which tells of the prompts of all, only how much it can hold."""
    server: Server = request.state.server
    # Paths of the console are open to all, but what is being asked is not.
    asker = server.gate.identify(request.headers)
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
    described = asdict(query)
    age, core = described.pop("age"), described.pop("computing")
    return described | {"core": core, "tail": max(0.0, age - query.waited - core)}


@router.get("/", include_in_schema=False)
@router.get("/console/{name}", include_in_schema=False)
async def page(request: Request, name: str = "index.html") -> Response:
    """The console, and what its page is made of."""
    response = await _FILES.get_response(name, request.scope)
    response.headers.update(_HEADERS)
    return response


@router.get("/v1/models", tags=["OpenAI", "Anthropic"])
async def list_models(
    request: Request,
    scope: Scope,
    limit: Limit = 20,
    after_id: Cursor = None,
    before_id: Cursor = None,
) -> Response:
    """All names by which models can be called. With the header `anthropic-version`, a page of them
    in Anthropic's form."""
    names, server = scope.server.models, scope.server
    if not is_anthropic(request.scope):
        return Json({"object": "list", "data": [_model(each, server) for each in names]})
    known = {each: _info(each, server) for each in names}
    return Json(page_of(known, limit, after_id, before_id))


@router.get("/v1/models/{name:path}")
async def get_model(name: str, request: Request, scope: Scope) -> Response:
    """One model. With the header `anthropic-version`, in Anthropic's form."""
    return Json((_info if is_anthropic(request.scope) else _model)(name, scope.server))


def _model(name: str, server: Server) -> dict[str, Any]:
    """max_model_len: tokens of a prompt and its answer together, as in vLLM. Raises HttpError."""
    about = {"created": server.began, "owned_by": "relquery"}
    context = server.model(name).facts.context
    return {"id": name, "object": "model", **about, "max_model_len": context}


def _info(name: str, server: Server) -> dict[str, Any]:
    """max_input_tokens leaves room for one token. Raises HttpError."""
    context = server.model(name).facts.context
    return {
        "id": name,
        "type": "model",
        "display_name": name,
        "created_at": instant(server.began),
        "lifecycle": "active",
        "max_input_tokens": context - 1,
        "max_tokens": context,
    }
