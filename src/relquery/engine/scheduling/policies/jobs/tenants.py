"""How much of the engine each tenant has used: fairness between simultaneous clients.

Each tenant has a counter of the tokens that were computed for it, divided by its weight, as in the
virtual token counter of Sheng et al. ("Fairness in Serving Large Language Models", 2024). Unlike in
that paper, the lowest counter does not always go first, because then everybody's relQueries would
run at once and end late. A tenant steps back only when it is ahead of another waiting tenant by
more than a slack. Between tenants that are not ahead, priorities decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from relquery.engine.request.relquery import RelQuery

OUTPUT = 2.0
"""How many prompt tokens one answer token counts as."""


class Tenants:
    """Counters of service.

    weights: a tenant with weight 2 gets twice as much as one with weight 1; the default is 1.
    slack: tokens, divided by the weight, that a tenant may be ahead before it steps back.
    """

    def __init__(self, weights: Mapping[str, float], slack: float) -> None:
        self._weights, self._slack = weights, slack
        self._counters: dict[str, float] = {}
        self._open: Counter[str] = Counter()
        self._seen: dict[int, tuple[str, int, int]] = {}

    def take_in(self, relquery: RelQuery) -> None:
        """Count what was computed for a relQuery since the last time.

        At the first time nothing has been, or only before it was forgotten, when it was counted.
        """
        tenant = relquery.tenant
        if relquery.id not in self._seen:
            self._join(tenant)
        done = relquery.computed_prompts, relquery.drawn_tokens
        _, prompts, outputs = self._seen.get(relquery.id, (tenant, *done))
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
        """All tenants that are too far ahead of the least served of these tenants."""
        if len(self._open) < 2 or not waiting:
            return frozenset()
        bound = min(self._counters[tenant] for tenant in waiting) + self._slack
        return frozenset(tenant for tenant in self._open if self._counters[tenant] > bound)

    def _join(self, tenant: str) -> None:
        """Add a tenant. It gets no credit for the time it was absent."""
        if not self._open[tenant]:
            others = [self._counters[other] for other, count in self._open.items() if count]
            self._counters[tenant] = max(self._counters.get(tenant, 0.0), min(others, default=0.0))
        self._open[tenant] += 1
