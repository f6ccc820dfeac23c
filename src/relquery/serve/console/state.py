"""The state of the engine, as the page shows it once a second."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel

from relquery.backends.service.state import EngineState, OpenQuery
from relquery.serve.documented import errors
from relquery.serve.server import Server

router = APIRouter(tags=["Console"])

MOST_SHOWN = 100
"""Open relQueries, the earliest ones."""


class CacheState(BaseModel):
    """Tokens that the cache can hold, that running requests hold, that later ones may find, and
    that hold nothing. These tell of the prompts of all tenants: only who may see those is told
    more than the first."""

    tokens: int
    held: int | None
    cached: int | None
    free: int | None


class RequestsState(BaseModel):
    """Requests without an answer."""

    open: int
    waiting: int
    running: int


class TokensState(BaseModel):
    """Sums over answers since the server was started. total: prompt and output."""

    answers: int
    prompt: int
    cached: int
    output: int
    total: int


class QueryState(BaseModel):
    """An open relQuery; see OpenQuery. Seconds: waited before its first prompt was begun, core
    until its last prompt was computed, tail since then, estimate until its last answer."""

    number: int
    tenant: str
    requests: int
    waiting: int
    running: int
    answered: int
    waited: float
    core: float
    tail: float
    estimate: float | None


class ConsoleState(BaseModel):
    """A moment of the server. now: seconds on its clock. queries: open relQueries, by arrival.
    more: whether others of them are not listed. Requests, tokens and queries are those of the
    caller's tenant; who may see what concerns all is shown those of all."""

    now: float
    models: list[str]
    policy: str
    context: int
    cache: CacheState
    requests: RequestsState
    tokens: TokensState
    queries: list[QueryState]
    more: bool


@router.get("/console/state", responses=errors(503))
async def console_state(request: Request) -> ConsoleState:
    """What the engine is doing now; a tenant sees what concerns itself."""
    server: Server = request.state.server
    # Paths of the console are open to all, but what is being asked is not.
    asker = server.gate.asker(request.scope["headers"])
    tenant = None if asker.operator else asker.tenant
    state: EngineState = await server.ask("state", MOST_SHOWN + 1, tenant)
    tally = server.link.tally if tenant is None else server.measures.tally(tenant)
    return ConsoleState(
        now=server.link.clock.now(),
        models=list(server.models),
        policy=server.facts.policy,
        context=server.facts.context,
        cache=_cache(state, whole=tenant is None),
        requests=RequestsState(
            open=state.waiting + state.running, waiting=state.waiting, running=state.running
        ),
        tokens=TokensState(
            answers=tally.answers,
            prompt=tally.prompt,
            cached=tally.cached,
            output=tally.output,
            total=tally.prompt + tally.output,
        ),
        queries=[_query(each) for each in state.queries[:MOST_SHOWN]],
        more=len(state.queries) > MOST_SHOWN,
    )


def _cache(state: EngineState, *, whole: bool) -> CacheState:
    if not whole:
        return CacheState(tokens=state.cache_tokens, held=None, cached=None, free=None)
    free = state.cache_tokens - state.held - state.cached
    return CacheState(tokens=state.cache_tokens, held=state.held, cached=state.cached, free=free)


def _query(query: OpenQuery) -> QueryState:
    return QueryState(
        number=query.number,
        tenant=query.tenant,
        requests=query.requests,
        waiting=query.waiting,
        running=query.running,
        answered=query.answered,
        waited=query.waited,
        core=query.computing,
        tail=max(0.0, query.age - query.waited - query.computing),
        estimate=query.estimate,
    )
