"""A trace served by an engine: each relQuery is submitted when it arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from relquery.engine.clock import Clock
from relquery.engine.loop import Loop
from relquery.engine.relquery import Latency, RelQuery
from relquery.engine.request import Request
from relquery.serving.trace import TracedQuery

Prepare = Callable[[TracedQuery, int], Sequence[Request]]
"""Makes the requests of a relQuery, given its number, which is their group."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one relQuery. latency: from its arrival in the trace."""

    query: TracedQuery
    latency: Latency
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


def serve(
    queries: Sequence[TracedQuery],
    engine: Loop,
    clock: Clock,
    wait: Callable[[float], None],
    prepare: Prepare,
) -> Iterator[Outcome]:
    """Serve relQueries, given in order of arrival; yields each when it ends.

    wait: lets so many seconds pass, when nothing is to be done.
    """
    begin = clock.now()
    opened: dict[int, tuple[RelQuery, list[Request]]] = {}
    arrived = 0
    while arrived < len(queries) or opened:
        while arrived < len(queries) and begin + queries[arrived].arrival <= clock.now():
            query, number = queries[arrived], arrived
            arrived += 1
            requests = list(prepare(query, number))
            if requests:
                came = begin + query.arrival
                (relquery,) = {engine.submit(one, query.tenant, came) for one in requests}
                opened[number] = relquery, requests
        if not opened:
            if arrived < len(queries):
                wait(begin + queries[arrived].arrival - clock.now())
            continue
        engine.step()
        for number in [n for n, (relquery, _) in opened.items() if relquery.ended is not None]:
            relquery, requests = opened.pop(number)
            assert relquery.latency is not None
            yield Outcome(
                queries[number],
                relquery.latency,
                sum(request.prompt_tokens for request in requests),
                sum(request.cached or 0 for request in requests),
                relquery.answered_tokens,
            )
