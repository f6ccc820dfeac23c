"""What prompts find in a cache, and what they cost: by a cache of ours, or a provider's rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from relquery.backends.base import Backend
from relquery.prompt import Prompt, Sampling
from relquery.sql.explain.cost.estimate import Estimator, Known, StageCost
from relquery.sql.explain.prefixes import HitRate, Prefixes


class Charge(NamedTuple):
    """hits: None if nothing is known of a cache. cost: None if nobody wants to know it."""

    hits: HitRate | None = None
    cost: StageCost | None = None

    def times(self, part: float) -> Charge:
        """For a part of the prompts, or for more prompts like them."""
        return self if self.cost is None else Charge(self.hits, self.cost * part)

    def of_sample(self, part: float) -> Charge:
        """For so many times the prompts of a sample."""
        hits = None if self.hits is None else replace(self.hits, is_sample=True)
        return Charge(hits, self.cost).times(part)


@dataclass(slots=True)
class Charges:
    """The prompts of a statement, stage by stage. always: whether to tell costs also where no price
    is known.
    """

    backend: Backend
    always: bool = False
    _prefixes: Prefixes = field(init=False)
    _estimator: Estimator = field(init=False)

    def __post_init__(self) -> None:
        self._prefixes = Prefixes(self.backend)
        self._estimator = Estimator(self.backend)

    @property
    def tells_costs(self) -> bool:
        """Whether costs are told."""
        return self.always or self._estimator.price is not None

    @property
    def is_known(self) -> bool:
        """Whether anything is known about the order that prompts are sent in."""
        return self._prefixes.is_known or self.tells_costs

    def of(
        self,
        ours: Sequence[Prompt],
        written: Sequence[Prompt],
        sampling: Sampling,
        known: Known,
        length: float | None,
        *,
        is_new: bool = True,
    ) -> Charge:
        """What prompts take if they are sent next; see Estimator.stage and Prefixes.send."""
        hits = self._prefixes.send(ours, sampling, is_new=is_new)
        if not self.tells_costs:
            return Charge(hits)
        rate = None if hits is None else hits.rate
        cost = self._estimator.stage(ours, written, sampling, known, length, rate)
        if cost.live is not None and cost.input.expected:
            hits = HitRate(cost.cached.expected / cost.input.expected, True)
        return Charge(hits, cost)
