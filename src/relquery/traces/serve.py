"""A trace served by an engine: each relQuery is submitted when it arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from relquery.arrays import TokenIds
from relquery.engine.executor import Clock
from relquery.engine.loop import Loop
from relquery.engine.requests.relquery import Latency, RelQuery
from relquery.engine.requests.request import Request, Rules
from relquery.errors import RequestError
from relquery.traces.trace import TracedQuery

Prepare = Callable[[TracedQuery, int], Sequence[Request]]
"""Creates the requests of a relQuery from its number, which is their group."""


Tokenize = Callable[[str], TokenIds]


def requests_of(
    query: TracedQuery, group: int, numbers: Iterator[int], tokenize: Tokenize
) -> list[Request]:
    """The requests of a relQuery, with answers of the lengths in the trace."""
    return [
        Request(
            next(numbers),
            tokenize(prompt),
            query.output_limit,
            rules=Rules(stop=_after(length)),
            group=group,
        )
        for prompt, length in zip(query.prompts, query.outputs, strict=True)
    ]


def _after(tokens: int) -> Callable[[Sequence[int]], bool]:
    return lambda output: len(output) >= tokens


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one relQuery.

    latency: from its arrival in the trace, all zero if none of its requests could be served.
    failed: requests without an answer.
    """

    query: TracedQuery
    latency: Latency
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    failed: int = 0


def serve(
    queries: Sequence[TracedQuery],
    engine: Loop,
    clock: Clock,
    wait: Callable[[float], None],
    prepare: Prepare,
) -> Iterator[Outcome]:
    """Serve relQueries, given in order of arrival; yields each when it ends.

    wait: lets the given number of seconds pass when there is nothing to do.
    """
    begin = clock.now()
    opened: dict[int, _Open] = {}
    arrived = 0
    while arrived < len(queries) or opened:
        while arrived < len(queries) and begin + queries[arrived].arrival <= clock.now():
            query, number = queries[arrived], arrived
            arrived += 1
            came = _submit(engine, query, prepare(query, number), begin + query.arrival)
            if came.relquery is not None:
                opened[number] = came
            elif came.requests:
                yield came.outcome()
        if not opened:
            if arrived < len(queries):
                wait(begin + queries[arrived].arrival - clock.now())
            continue
        engine.step()
        for number in [number for number, each in opened.items() if each.ended]:
            yield opened.pop(number).outcome()


@dataclass(frozen=True, slots=True)
class _Open:
    """An open relQuery; its engine relQuery is None if no request could be accepted."""

    query: TracedQuery
    requests: Sequence[Request]
    relquery: RelQuery | None
    refused: int

    @property
    def ended(self) -> bool:
        return self.relquery is not None and self.relquery.ended is not None

    def outcome(self) -> Outcome:
        latency = None if self.relquery is None else self.relquery.latency
        return Outcome(
            self.query,
            latency or Latency(0.0, 0.0, 0.0),
            sum(request.prompt_tokens for request in self.requests),
            sum(request.cached or 0 for request in self.requests),
            self.relquery.answered_tokens if self.relquery else 0,
            self.refused,
        )


def _submit(engine: Loop, query: TracedQuery, requests: Sequence[Request], arrival: float) -> _Open:
    relquery, refused = None, 0
    for request in requests:
        try:
            relquery = engine.submit(request, query.tenant, arrival)
        except RequestError:
            refused += 1
    return _Open(query, requests, relquery, refused)
