"""How much of the engine each tenant has used: fairness between simultaneous clients.

Each tenant has a counter of the tokens that were computed for it, divided by its weight, as in the
virtual token counter of Sheng et al. ("Fairness in Serving Large Language Models", 2024). Unlike in
that paper, the lowest counter does not always go first, because then everybody's relQueries would
run at once and end late. A tenant steps back only when it is ahead of another waiting tenant by
more than a slack. Between tenants that are not ahead, priorities decide.

The counter of a tenant without requests is kept while it is ahead of who has some: else a name
would lose its debts by a pause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from math import inf

from relquery.engine.request.relquery import RelQuery

OUTPUT = 2.0
"""How many prompt tokens one answer token counts as."""
_FEW = 64
"""Counters that are kept before any is looked at again."""


class Tenants:
    """Counters of service.

    weights: a tenant with weight 2 gets twice as much as one with weight 1; the default is 1.
    slack: tokens, divided by the weight, that a tenant may be ahead before it steps back.
    others_share: whether all tenants without a weight of their own have one counter.
    """

    def __init__(
        self, weights: Mapping[str, float], slack: float, *, others_share: bool = False
    ) -> None:
        self._weights, self._slack, self._others_share = weights, slack, others_share
        self._room = _FEW
        self._counters: dict[str, float] = {}
        self._open: Counter[str] = Counter()
        self._seen: dict[int, tuple[str, int, int]] = {}

    def of(self, relquery: RelQuery) -> str:
        """Whose share a relQuery uses."""
        is_other = self._others_share and relquery.tenant not in self._weights
        return "" if is_other else relquery.tenant

    def take_in(self, relquery: RelQuery) -> None:
        """Count what was computed for a relQuery since the last time.

        At the first time nothing has been, or only before it was forgotten, when it was counted.
        """
        tenant = self.of(relquery)
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
            if len(self._counters) > self._room:
                self._free()

    def ahead(self, waiting: Collection[str]) -> frozenset[str]:
        """All tenants that are too far ahead of the least served of these tenants."""
        if len(self._open) < 2 or not waiting:
            return frozenset()
        bound = min(self._counters[tenant] for tenant in waiting) + self._slack
        return frozenset(tenant for tenant in self._open if self._counters[tenant] > bound)

    def _free(self) -> None:
        """Drop the counters of absent tenants that would be raised as soon as they come again."""
        least = min((self._counters[tenant] for tenant in self._open), default=inf)
        for tenant in self._counters.keys() - self._open.keys():
            if self._counters[tenant] <= least:
                del self._counters[tenant]
        self._room = _FEW + 2 * len(self._counters)

    def _join(self, tenant: str) -> None:
        """Add a tenant. It gets no credit for the time it was absent."""
        if not self._open[tenant]:
            others = [self._counters[other] for other, count in self._open.items() if count]
            self._counters[tenant] = max(self._counters.get(tenant, 0.0), min(others, default=0.0))
        self._open[tenant] += 1
