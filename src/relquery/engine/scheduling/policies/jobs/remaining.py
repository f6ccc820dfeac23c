"""Seconds that a relQuery still takes by itself (PEM: paper 003, definition 4.1)."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from weakref import WeakKeyDictionary, ref

import numpy as np

from relquery.arrays import Floats
from relquery.engine.cost.linear import LinearCost
from relquery.engine.request.relquery import RelQuery
from relquery.engine.request.request import Request
from relquery.engine.scheduling.plan import State
from relquery.engine.scheduling.policies.jobs.estimate import decompose
from relquery.engine.scheduling.reuse import cached_tokens


class Remaining:
    """An Estimate: the remaining work is cut into batches, and their durations are summed.

    Answers are assumed to have the maximum length. sample: number of requests from which the
    uncached share of its prompts is estimated (eq. 11). seed: for drawing them; the draw depends
    only on the seed and the relQuery, so asking again changes nothing. shared: charge only its part
    of the fixed seconds of its decode steps, because all running relQueries decode in the same
    steps.
    """

    def __init__(
        self, cost: LinearCost, sample: int = 10, seed: int = 0, *, shared: bool = False
    ) -> None:
        self._cost, self._sample, self._seed, self._shared = cost, sample, seed, shared
        self._seen: ref[State] | None = None
        self._count = 0
        self._ratios: WeakKeyDictionary[RelQuery, tuple[int, float]] = WeakKeyDictionary()

    def __call__(self, relquery: RelQuery, state: State) -> float:
        """See Estimate."""
        lengths = relquery.waiting.lengths
        uncached = lengths.astype(np.float64) * self.miss_ratio(relquery, state)
        unfinished = sum(
            max(0, request.prompt_tokens - request.computed) for request in relquery.running
        )
        left = [self.left(request) for request in relquery.running]
        batches = decompose(uncached, self.outputs(relquery), state.limits, left, unfinished)
        if not self._shared:
            return batches.seconds(self._cost)
        fixed = self._cost.decode_intercept / max(1, self._running(state))
        return batches.seconds(replace(self._cost, decode_intercept=fixed))

    def left(self, request: Request) -> float:
        """Tokens that a request may still generate."""
        return request.max_tokens - len(request.output)

    def outputs(self, relquery: RelQuery) -> Floats:
        """(n,) tokens that each waiting request may still generate."""
        return np.full(len(relquery.waiting), float(relquery.output_limit))

    def _running(self, state: State) -> int:
        """How many relQueries are running; counted once per step."""
        if self._seen is None or self._seen() is not state:
            self._seen, self._count = ref(state), len({each.group for each in state.running})
        return self._count

    def miss_ratio(self, relquery: RelQuery, state: State) -> float:
        """The uncached share of the waiting prompts, estimated from a random sample.

        It is computed again once a request has left the queue, because then more may be cached.
        """
        count = len(relquery.waiting)
        known = self._ratios.get(relquery)
        if known is not None and known[0] == count:
            return known[1]
        ratio = 1.0
        if count:
            draw = Random(f"{self._seed} {relquery.id} {count}")
            chosen = draw.sample(range(count), min(self._sample, count))
            sampled = relquery.waiting.pick(chosen)
            cached = sum(sum(cached_tokens(one, state.limits, state.pool)) for one in sampled)
            ratio -= cached / sum(request.length for request in sampled)
        self._ratios[relquery] = count, ratio
        return ratio
