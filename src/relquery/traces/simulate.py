"""A trace served by the engine's own loop on a virtual clock, with a given machine's costs."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

import numpy as np

from relquery.arrays import TokenIds
from relquery.engine.executor import SimulatedExecutor, VirtualClock
from relquery.engine.loop import Loop
from relquery.engine.machines import Served
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.plan import Policy
from relquery.traces.serve import Outcome, Tokenize, requests_of, serve
from relquery.traces.trace import TracedQuery


@dataclass(frozen=True, slots=True)
class Run:
    """A trace as one policy served it. seconds: from the start of the trace to the last answer."""

    outcomes: tuple[Outcome, ...]
    seconds: float

    def latencies(self) -> list[float]:
        """Latencies of all relQueries, in the order in which they ended."""
        return [outcome.latency.total for outcome in self.outcomes]


def simulate(
    queries: Sequence[TracedQuery], policy: Policy, served: Served, tokenize: Tokenize | None = None
) -> Run:
    """Serve a trace in virtual time. The same input gives the same run."""
    clock = VirtualClock()
    executor = SimulatedExecutor(clock, served.cost)
    engine = Loop(executor, served.limits, clock, policy, served.cost)
    split = tokenize or approximate_tokens
    numbers = count()

    def prepare(query: TracedQuery, group: int) -> list[Request]:
        return requests_of(query, group, numbers, split)

    outcomes = tuple(serve(queries, engine, clock, clock.advance, prepare))
    return Run(outcomes, clock.now())


_PIECE = re.compile(r"\s?\w{1,6}|\s?[^\w\s]|\s")


@lru_cache(maxsize=1 << 16)
def approximate_tokens(text: str) -> TokenIds:
    """Approximate subword tokens without a vocabulary: pieces of at most six letters.

    A piece has the same number everywhere, so equal beginnings give equal tokens.
    """
    pieces = _PIECE.findall(text)
    numbers = [zlib.crc32(piece.encode()) & 0x7FFFFFFF for piece in pieces]
    return np.array(numbers, dtype=np.int32)
