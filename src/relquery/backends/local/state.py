"""The state of a running engine, as people and monitors see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relquery.engine.loop import Loop
    from relquery.engine.requests.relquery import RelQuery

FORECASTS = 100
"""The most relQueries whose end is predicted: each forecast walks over those before it."""


@dataclass(frozen=True, slots=True)
class OpenQuery:
    """A relQuery that is being served.

    number: the engine's. requests: submitted so far; waiting, running, answered: of them. age:
    seconds since it arrived. waited, computing: seconds until its first prompt was begun, and since
    then until its last prompt so far was computed. estimate: predicted seconds to its last answer,
    None if not known.
    """

    number: int
    tenant: str
    requests: int
    waiting: int
    running: int
    answered: int
    age: float
    waited: float
    computing: float
    estimate: float | None


@dataclass(frozen=True, slots=True)
class EngineState:
    """A moment of an engine.

    waiting, running: requests. cache_tokens: the capacity of its cache; held, cached: tokens that
    requests hold, and that later ones may find. queries: the open relQueries, by arrival. Of one
    tenant, waiting, running and queries are its own; what the cache has is that of all.
    """

    waiting: int
    running: int
    cache_tokens: int
    held: int
    cached: int
    queries: tuple[OpenQuery, ...]


def state_of(engine: Loop, most: int = FORECASTS, tenant: str | None = None) -> EngineState:
    """The present state. most: relQueries that are listed. tenant: whose; None for all."""
    size, pool = engine.config.block_size, engine.pool
    now = engine.clock.now()
    known = engine.relqueries.values()
    own = [each for each in known if tenant is None or each.tenant == tenant]
    relqueries = sorted(own, key=lambda each: each.arrival)
    listed = tuple(
        _shown(each, now, engine.forecast(each.id) if index < FORECASTS else None)
        for index, each in enumerate(relqueries[:most])
    )
    return EngineState(
        waiting=sum(len(each.waiting) for each in own),
        running=sum(len(each.running) for each in own),
        cache_tokens=pool.total * size,
        held=pool.held * size,
        cached=pool.cached * size,
        queries=listed,
    )


def together(states: Sequence[EngineState], most: int) -> EngineState:
    """The states of several engines as one. most: relQueries that are listed, each with a number of
    its own."""
    numbered = (
        replace(each, number=each.number * len(states) + index)
        for index, state in enumerate(states)
        for each in state.queries
    )
    sums = {
        name: sum(getattr(each, name) for each in states)
        for name in ("waiting", "running", "cache_tokens", "held", "cached")
    }
    listed = sorted(numbered, key=lambda each: -each.age)
    return EngineState(**sums, queries=tuple(listed[:most]))


def _shown(query: RelQuery, now: float, estimate: float | None) -> OpenQuery:
    begun = now if query.started is None else query.started
    computed = begun if query.prefilled is None else query.prefilled
    if len(query.waiting) or any(not each.output for each in chain(query.running)):
        computed = now
    return OpenQuery(
        number=query.id,
        tenant=query.tenant,
        requests=query.size,
        waiting=len(query.waiting),
        running=len(query.running),
        answered=query.answered,
        age=now - query.arrival,
        waited=begun - query.arrival,
        computing=max(0.0, computed - begun) if query.started is not None else 0.0,
        estimate=estimate,
    )
