"""What an order can gain at all: a scheduler that knows all work, now and to come.

One machine serves one relQuery at a time and may leave it for another at any moment. It serves the
shortest remaining one that lets all others end within a longest wait, which is known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf

import numpy as np

from relquery.arrays import Floats
from relquery.engine.cost import LinearCost
from relquery.traces.simulate import approximate_tokens
from relquery.traces.trace import TracedQuery

COST = LinearCost(1e-4, 0.012, 3e-4, 0.012)
"""About that of the bundled model on two cores; only the ratio of prompts to answers matters."""
TOGETHER = 28
"""Requests that share a step's fixed cost."""
_MOMENT = 1e-3

Choose = Callable[[float, Sequence[int], Floats], tuple[int, float]]
"""Gives whom to serve at a time, and for how long at most. Given the time, who is there, and all
remaining work."""


def works(queries: Sequence[TracedQuery], seconds: float, block: int) -> Floats:
    """Seconds of work of each relQuery, which are `seconds` in all. block: of the prefix cache."""
    known: set[bytes] = set()
    found = []
    for query in queries:
        work = 0.0
        for prompt, output in zip(query.prompts, query.outputs, strict=True):
            tokens = approximate_tokens(prompt)
            ends = range(block, len(tokens) + 1, block)
            keys = [tokens[:end].tobytes() for end in ends]
            hits = next((index for index, key in enumerate(keys) if key not in known), len(keys))
            known.update(keys)
            work += COST.prefill_slope * (len(tokens) - hits * block)
            work += output * (COST.decode_slope + COST.decode_intercept / TOGETHER)
        found.append(work)
    return np.array(found) * (seconds / sum(found))


def latencies(arrivals: Floats, work: Floats, choose: Choose) -> Floats:
    """How long each relQuery takes from its arrival."""
    left, ended, now = work.copy(), np.zeros(len(work)), 0.0
    while left.any():
        there = [int(index) for index in np.flatnonzero(left) if arrivals[index] <= now]
        coming = arrivals[(left > 0) & (arrivals > now)]
        following = float(coming.min()) if len(coming) else inf
        if not there:
            now = following
            continue
        chosen, most = choose(now, there, left)
        lasts = max(_MOMENT, min(left[chosen], following - now, most))
        now += lasts
        left[chosen] = max(0.0, left[chosen] - lasts)
        if left[chosen] < _MOMENT / 2:
            left[chosen], ended[chosen] = 0.0, now
    return ended - arrivals


def first_come(now: float, there: Sequence[int], left: Floats) -> tuple[int, float]:
    """As they come. Queries are numbered by arrival."""
    del now, left
    return min(there), inf


def within(arrivals: Floats, longest: float) -> Choose:
    """The shortest that lets all end within a longest wait."""

    def choose(now: float, there: Sequence[int], left: Floats) -> tuple[int, float]:
        open_ = np.flatnonzero(left)
        ends = accumulate(
            open_, lambda end, at: max(end, float(arrivals[at])) + float(left[at]), initial=now
        )
        spare = [
            arrivals[index] + longest - end
            for index, end in zip(open_, list(ends)[1:], strict=True)
        ]
        least = dict(zip(open_, accumulate([inf, *spare[:-1]], min), strict=True))
        for index in sorted(there, key=left.__getitem__):
            if least[index] > _MOMENT:
                return index, least[index]
        return min(there), inf

    return choose


def gain(queries: Sequence[TracedQuery], seconds: float, block: int) -> float:
    """Mean latency as they come over the clairvoyant scheduler's, at no longer a 99th percentile.

    seconds: of all work.
    """
    arrivals = np.array([query.arrival for query in queries])
    work = works(queries, seconds, block)
    before = latencies(arrivals, work, first_come)
    after = latencies(arrivals, work, within(arrivals, float(np.percentile(before, 99))))
    return float(before.mean() / after.mean())
