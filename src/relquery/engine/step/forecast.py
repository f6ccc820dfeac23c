"""Predicting when a relQuery will have its last answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from relquery.config import EngineConfig
from relquery.engine.cost.linear import LinearCost
from relquery.engine.request.relquery import RelQuery
from relquery.engine.request.request import Request

KEPT = 0.98
"""Weight of a step's seconds relative to the next step's."""


@dataclass(slots=True)
class Experience:
    """What an engine has seen so far, used to predict what comes.

    admitted: prompt tokens of admitted requests. computed: those of them that were not cached.
    limit: the most tokens that answers could have had. drawn: the tokens that they had.
    measured: seconds of steps. predicted: the cost model's seconds. Recent steps count most.
    """

    admitted: int = 0
    computed: int = 0
    limit: int = 0
    drawn: int = 0
    measured: float = 0.0
    predicted: float = 0.0

    def step(self, measured: float, predicted: float) -> None:
        """Record the measured and predicted seconds of a step."""
        self.measured = KEPT * self.measured + measured
        self.predicted = KEPT * self.predicted + predicted

    def admit(self, request: Request) -> None:
        """Record a request that was admitted for the first time."""
        self.admitted += request.prompt_tokens
        self.computed += request.prompt_tokens - (request.cached or 0)

    def answered(self, request: Request) -> None:
        """Record a request that has its answer."""
        self.limit += request.max_tokens
        self.drawn += len(request.output)

    @property
    def miss_ratio(self) -> float:
        """Share of prompt tokens that are computed; 1 as long as nothing is known."""
        return self.computed / self.admitted if self.admitted else 1.0

    @property
    def pace(self) -> float:
        """Measured seconds per predicted second of a step; 1 as long as nothing is known."""
        return self.measured / self.predicted if self.predicted else 1.0

    @property
    def length_ratio(self) -> float:
        """Share of its limit that an answer has; 1 as long as nothing is known."""
        return self.drawn / self.limit if self.limit else 1.0

    @property
    def usual_length(self) -> float | None:
        """The same, but None as long as nothing is known."""
        return self.length_ratio if self.limit else None


def forecast(
    order: Iterable[RelQuery],
    number: int,
    limits: EngineConfig,
    cost: LinearCost,
    experience: Experience,
    usual: float = 1.0,
) -> float:
    """Seconds until the last answer of a relQuery.

    order: the relQueries served before it, and then the relQuery itself. usual: share of its limit
    that the longest answer has, which decides how many steps it takes. Prompts are computed in
    this order, together with the decodes of all requests whose prompts are in the cache. If the
    cache is full, the next prompts start when all requests in it have been answered, as in
    Algorithm 1 of paper 003. Declared rows that have not come count as if they waited. Later
    arrivals that overtake it are not foreseen.
    """
    clock = level = longest = 0.0  # level: how full the cache is, of tokens or of requests
    for relquery in order:
        waiting, expected = len(relquery.waiting), relquery.expected
        prompts = float(relquery.waiting.lengths.sum()) + expected * relquery.mean_prompt
        begun = sum(each.prompt_tokens - each.computed for each in relquery.running)
        left = [max(1, each.max_tokens - len(each.output)) for each in relquery.running]
        answers = sum(left) + (waiting + expected) * relquery.output_limit
        own = max(1.0, usual * max(0, *left, relquery.output_limit if waiting or expected else 0))
        held = sum(each.length for each in relquery.running) + prompts
        count = len(left) + waiting + expected
        level += max(held / limits.cache_tokens, count / limits.max_num_seqs)
        longest = max(longest, own)
        rounds = max(0, ceil(level) - 1)
        if rounds:
            clock += (longest + (rounds - 1) * own) * cost.decode_intercept
            level, longest = level - rounds, own
        computed = prompts * experience.miss_ratio + max(0, begun)
        clock += cost.prefill_slope * computed
        clock += cost.decode_slope * answers * experience.length_ratio
        if relquery.id == number:
            return experience.pace * (clock + own * cost.decode_intercept)
    raise KeyError(number)
