"""Who had how much of the engine: fairness between those who ask at the same time.

Each tenant has a counter of the tokens that were computed for it, divided by its weight, as in the
virtual token counter of Sheng et al. ("Fairness in Serving Large Language Models", 2024). Unlike
there, the lowest counter does not always go first, which would make everybody's relQueries run at
once and end late: a tenant steps back only when it is ahead of another that waits by more than a
slack. Between those who are not ahead, priorities decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from relquery.engine.request.relquery import RelQuery

OUTPUT = 2.0
"""What a token of an answer counts, in tokens of a prompt."""


class Tenants:
    """Counters of service.

    weights: a tenant with weight 2 gets twice what one with weight 1 gets; 1 for those not named.
    slack: tokens, over the weight, that a tenant may be ahead of another before it steps back.
    """

    def __init__(self, weights: Mapping[str, float], slack: float) -> None:
        self._weights, self._slack = weights, slack
        self._counters: dict[str, float] = {}
        self._open: Counter[str] = Counter()
        self._seen: dict[int, tuple[str, int, int]] = {}

    def take_in(self, relquery: RelQuery) -> None:
        """Count what was computed for a relQuery since the last time."""
        tenant = relquery.tenant
        if relquery.id not in self._seen:
            self._join(tenant)
        _, prompts, outputs = self._seen.get(relquery.id, (tenant, 0, 0))
        done = relquery.computed_prompts, relquery.drawn_tokens
        self._seen[relquery.id] = tenant, *done
        tokens = (done[0] - prompts) + OUTPUT * (done[1] - outputs)
        self._counters[tenant] += tokens / self._weights.get(tenant, 1.0)

    def forget(self, number: int) -> None:
        """A relQuery has ended."""
        tenant = self._seen.pop(number)[0]
        self._open[tenant] -= 1
        if not self._open[tenant]:
            del self._open[tenant]

    def ahead(self, waiting: Collection[str]) -> frozenset[str]:
        """Of all tenants, those who had too much more than the one that had the least of these."""
        if len(self._open) < 2 or not waiting:
            return frozenset()
        bound = min(self._counters[tenant] for tenant in waiting) + self._slack
        return frozenset(tenant for tenant in self._open if self._counters[tenant] > bound)

    def _join(self, tenant: str) -> None:
        """Who was away gets no credit for it."""
        if not self._open[tenant]:
            others = [self._counters[other] for other, count in self._open.items() if count]
            self._counters[tenant] = max(self._counters.get(tenant, 0.0), min(others, default=0.0))
        self._open[tenant] += 1
