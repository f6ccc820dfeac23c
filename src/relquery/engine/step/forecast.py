"""When a relQuery will have its last answer, as far as that can be told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relquery.config import EngineConfig
from relquery.engine.cost.linear import LinearCost
from relquery.engine.request.relquery import RelQuery
from relquery.engine.request.request import Request

KEPT = 0.98
"""Weight of a step's seconds beside those of the step after it."""


@dataclass(slots=True)
class Experience:
    """What an engine has seen so far, to judge by what comes.

    admitted: prompt tokens of requests that were taken in, and computed: of these, those that the
    cache did not serve. limit: tokens that answers might have had, and drawn: those they had.
    measured: seconds of steps, and predicted: what the cost model said, the last steps most.
    """

    admitted: int = 0
    computed: int = 0
    limit: int = 0
    drawn: int = 0
    measured: float = 0.0
    predicted: float = 0.0

    def step(self, measured: float, predicted: float) -> None:
        """A step took so many seconds."""
        self.measured = KEPT * self.measured + measured
        self.predicted = KEPT * self.predicted + predicted

    def admit(self, request: Request) -> None:
        """A request was taken in for the first time."""
        self.admitted += request.prompt_tokens
        self.computed += request.prompt_tokens - (request.cached or 0)

    def answered(self, request: Request) -> None:
        """A request has its answer."""
        self.limit += request.max_tokens
        self.drawn += len(request.output)

    @property
    def miss_ratio(self) -> float:
        """Share of prompt tokens that are computed; 1 as long as nothing is known."""
        return self.computed / self.admitted if self.admitted else 1.0

    @property
    def pace(self) -> float:
        """Seconds of a step for each that the cost model says; 1 as long as nothing is known."""
        return self.measured / self.predicted if self.predicted else 1.0

    @property
    def length_ratio(self) -> float:
        """Share of its limit that an answer has; 1 as long as nothing is known."""
        return self.drawn / self.limit if self.limit else 1.0


def forecast(
    order: Iterable[RelQuery],
    number: int,
    limits: EngineConfig,
    cost: LinearCost,
    experience: Experience,
) -> float:
    """Seconds until the last answer of a relQuery.

    order: those that are served before it, and it as the last. Prompts are computed in this order,
    together with the decodes of all whose prompts the cache holds; where it is full, the next
    prompts come when all that it holds have been answered, as in Algorithm 1 of paper 003. Who
    comes later and goes before it is not foreseen.
    """
    clock = level = longest = 0.0  # level: how full the cache is, of tokens or of requests
    for relquery in order:
        prompts = float(relquery.waiting.lengths.sum())
        begun = sum(each.prompt_tokens - each.computed for each in relquery.running)
        left = [max(1, each.max_tokens - len(each.output)) for each in relquery.running]
        left += [relquery.output_limit] * len(relquery.waiting)
        held = sum(each.length for each in relquery.running) + prompts
        level += max(held / limits.cache_tokens, len(left) / limits.max_num_seqs)
        longest = max(longest, *left)
        while level > 1:
            clock += longest * cost.decode_intercept
            level, longest = level - 1, max(left)
        computed = prompts * experience.miss_ratio + max(0, begun)
        clock += cost.prefill_slope * computed
        clock += cost.decode_slope * sum(left) * experience.length_ratio
        if relquery.id == number:
            return experience.pace * (clock + max(left) * cost.decode_intercept)
    raise KeyError(number)
