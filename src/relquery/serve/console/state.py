"""The state of the engine, as the page shows it once a second."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request
from pydantic import BaseModel

from relquery.backends.service.state import EngineState, OpenQuery
from relquery.serve.access.gate import Asker
from relquery.serve.documented import errors
from relquery.serve.server import Server

router = APIRouter(tags=["Console"])

MOST_LISTED = 1_000
"""Open relQueries that the engine lists, of all tenants."""
MOST_SHOWN = 100


class CacheState(BaseModel):
    """Tokens that the cache can hold, that running requests hold, that later ones may find, and
    that hold nothing."""

    tokens: int
    held: int
    cached: int
    free: int


class RequestsState(BaseModel):
    """Requests without an answer, of all tenants."""

    open: int
    waiting: int
    running: int


class TokensState(BaseModel):
    """Sums over all answers since the server was started. total: prompt and output."""

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
    """A moment of the server. now: seconds on its clock. queries: the caller's open relQueries,
    by arrival. more: whether others of them are not listed."""

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
    """What the engine is doing now; a tenant sees the relQueries of its own."""
    server: Server = request.state.server
    # Paths of the console are open to all, but what is being asked is not.
    asker = server.gate.asker(request.scope["headers"])
    state: EngineState = await server.ask("state", MOST_LISTED)
    return _shown(state, server, asker)


def _shown(state: EngineState, server: Server, asker: Asker) -> ConsoleState:
    queries, more = shown_to(asker, state)
    tally = server.link.tally
    return ConsoleState(
        now=server.link.clock.now(),
        models=list(server.models),
        policy=server.facts.policy,
        context=server.facts.context,
        cache=CacheState(
            tokens=state.cache_tokens,
            held=state.held,
            cached=state.cached,
            free=state.cache_tokens - state.held - state.cached,
        ),
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
        queries=[_query(each) for each in queries],
        more=more,
    )


def shown_to(asker: Asker, state: EngineState) -> tuple[Sequence[OpenQuery], bool]:
    """The open relQueries that someone may see, and whether others of them are left out."""
    own = [each for each in state.queries if asker.tenant in ("", each.tenant)]
    return own[:MOST_SHOWN], len(own) > MOST_SHOWN or len(state.queries) == MOST_LISTED


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
