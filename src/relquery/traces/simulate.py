"""A trace served by the engine's own loop, on a virtual clock or a real one, and its statistics."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

import numpy as np

from relquery.arrays import TokenIds
from relquery.engine.executor import Clock, SimulatedExecutor, VirtualClock
from relquery.engine.loop import Loop
from relquery.engine.machines import Served
from relquery.engine.requests.relquery import Latency, RelQuery
from relquery.engine.requests.request import Request, Rules
from relquery.engine.scheduling.plan import Policy
from relquery.errors import RequestError
from relquery.traces.trace import TracedQuery

Prepare = Callable[[TracedQuery, int], Sequence[Request]]
"""Creates the requests of a relQuery from its number, which is their group."""


Tokenize = Callable[[str], TokenIds]


def requests_of(
    query: TracedQuery, group: int, numbers: Iterator[int], tokenize: Tokenize
) -> list[Request]:
    """The requests of a relQuery, with answers of the lengths in the trace."""
    prompts = [each.token_ids for each in query.hashed] or map(tokenize, query.prompts)
    return [
        Request(
            next(numbers),
            tokens,
            query.output_limit,
            rules=Rules(stop=_after(length)),
            group=group,
        )
        for tokens, length in zip(prompts, query.outputs, strict=True)
    ]


def _after(tokens: int) -> Callable[[Sequence[int]], bool]:
    return lambda output: len(output) >= tokens


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one relQuery."""

    query: TracedQuery
    latency: Latency
    """Latency from its arrival in the trace, all zero if none of its requests could be served."""
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    failed: int = 0
    """Requests without an answer."""


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


@dataclass(frozen=True, slots=True)
class ServedTrace:
    """A trace as one policy served it."""

    outcomes: tuple[Outcome, ...]
    seconds: float
    """Seconds from the start of the trace to the last answer."""

    def latencies(self) -> list[float]:
        """Latencies of all relQueries, in the order in which they ended."""
        return [outcome.latency.total for outcome in self.outcomes]


def simulate(
    queries: Sequence[TracedQuery], policy: Policy, served: Served, tokenize: Tokenize | None = None
) -> ServedTrace:
    """Serve a trace in virtual time. The same input gives the same run."""
    clock = VirtualClock()
    executor = SimulatedExecutor(clock, served.cost)
    engine = Loop(executor, served.limits, clock, policy, served.cost)
    split = tokenize or approximate_tokens
    numbers = count()

    def prepare(query: TracedQuery, group: int) -> list[Request]:
        return requests_of(query, group, numbers, split)

    outcomes = tuple(serve(queries, engine, clock, clock.advance, prepare))
    return ServedTrace(outcomes, clock.now())


_PIECE = re.compile(r"\s?\w{1,6}|\s?[^\w\s]|\s")


@lru_cache(maxsize=1 << 16)
def approximate_tokens(text: str) -> TokenIds:
    """Approximate subword tokens without a vocabulary: pieces of at most six letters.

    A piece has the same number everywhere, so equal beginnings give equal tokens.
    """
    return np.array([*map(_number, _PIECE.findall(text))], dtype=np.int32)


@lru_cache(maxsize=1 << 16)
def _number(piece: str) -> int:
    return zlib.crc32(piece.encode()) & 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, median, 99th percentile and maximum, in seconds."""

    mean: float
    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value; percentiles are interpolated."""
        p50, p99 = np.percentile(values, [50, 99]).tolist()
        return cls(float(np.mean(values)), p50, p99, max(values))


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in numbers."""

    total: Spread
    """Latencies of relQueries."""
    waiting: Spread
    """Their waiting part (paper 003, eq. 2)."""
    core: Spread
    """Their core part (paper 003, eq. 2)."""
    tail: Spread
    """Their tail part (paper 003, eq. 2)."""
    relqueries: int
    """The number of relQueries."""
    requests: int
    """The number of requests."""
    failed: int
    """Requests without an answer."""
    seconds: float
    """Seconds from the start of the trace to the last answer."""
    hit_rate: float
    """Share of prompt tokens served from the cache."""
    tokens_per_second: float
    """Tokens of prompts and answers a second."""


def summarize(run: ServedTrace) -> Summary:
    """The numbers of a run of at least one relQuery."""
    outcomes = run.outcomes
    latencies = [outcome.latency for outcome in outcomes]
    prompts = sum(outcome.prompt_tokens for outcome in outcomes)
    outputs = sum(outcome.output_tokens for outcome in outcomes)
    return Summary(
        total=Spread.of([latency.total for latency in latencies]),
        waiting=Spread.of([latency.waiting for latency in latencies]),
        core=Spread.of([latency.core for latency in latencies]),
        tail=Spread.of([latency.tail for latency in latencies]),
        relqueries=len(outcomes),
        requests=sum(len(outcome.query.rows) for outcome in outcomes),
        failed=sum(outcome.failed for outcome in outcomes),
        seconds=run.seconds,
        hit_rate=sum(outcome.cached_tokens for outcome in outcomes) / max(prompts, 1),
        tokens_per_second=(prompts + outputs) / run.seconds if run.seconds else 0.0,
    )
