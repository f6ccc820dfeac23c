"""Tenants that compete get shares by their weights, within a slack; who asks alone gets all."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.harness import Harness, numbered

from relquery.config import PolicyName
from relquery.engine.cost import LinearCost
from relquery.engine.policies.catalogue import Settings, make_policy
from relquery.engine.policies.priority import SLACK, Fairness
from relquery.engine.policies.tenants import OUTPUT, Tenants
from relquery.engine.relquery import RelQuery

COST = LinearCost(1e-3, 0.01, 1e-4, 0.03)
STEP = 40
LIMITS: dict[str, Any] = {
    "block_size": 4,
    "cache_tokens": 4000,
    "max_num_batched_tokens": STEP,
    "max_num_seqs": 4,
}


def served(weights: dict[str, float], policy: PolicyName, steps: int = 300) -> dict[str, float]:
    """Tokens of service that a tenant of small and one of large relQueries get, both waiting."""
    engine = Harness(
        policy=make_policy(policy, Settings(COST, Fairness(weights=weights))), **LIMITS
    )
    everyone: list[RelQuery] = []
    group = 0
    for _ in range(120):
        for tenant, rows in (("small", 2), ("large", 12)):
            for row in range(rows):
                prompt = numbered(20, start=10_000 * group + 100 * row)
                engine.submit(prompt.tolist(), 4, tenant, group=group)
            everyone.append(engine.engine.relqueries[group])
            group += 1
    for _ in range(steps):
        engine.step()
    totals = dict.fromkeys(("small", "large"), 0.0)
    for relquery in everyone:
        totals[relquery.tenant] += relquery.computed_prompts + OUTPUT * relquery.drawn_tokens
    assert all(engine.engine.relqueries.get(each.id) for each in everyone[-20:]), "none ran dry"
    return totals


@pytest.mark.parametrize("policy", ["static", "relserve", "shortest"])
@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_tenants_that_wait_get_service_by_weight(policy: PolicyName, weight: float) -> None:
    totals = served({"large": weight}, policy)
    behind = abs(totals["large"] / weight - totals["small"])
    # The slack, the step that exceeded it, and what was taken in before and goes on to its end.
    assert behind <= (SLACK + 1) * STEP + LIMITS["max_num_seqs"] * (20 + OUTPUT * 4)
    assert sum(totals.values()) > 20 * behind


def test_one_tenant_changes_nothing() -> None:
    def end(tenant: str) -> list[float | None]:
        engine = Harness(policy=make_policy("shortest", Settings(COST)), **LIMITS)
        relqueries = []
        for group, rows in enumerate((7, 2, 5, 1)):
            for row in range(rows):
                prompt = numbered(15, start=1000 * group + 50 * row)
                engine.submit(prompt.tolist(), 3, tenant, group=group)
            relqueries.append(engine.engine.relqueries[group])
        engine.run()
        return [relquery.ended for relquery in relqueries]

    assert end("") == end("someone")


def test_who_was_away_gets_no_credit() -> None:
    tenants = Tenants({}, slack=100)
    busy, late = RelQuery(0, 0.0, "busy"), RelQuery(1, 0.0, "late")
    tenants.take_in(busy)
    busy.computed_prompts = 10_000
    tenants.take_in(busy)
    tenants.take_in(late)
    assert tenants.ahead({"busy", "late"}) == frozenset()
    late.drawn_tokens = 60
    tenants.take_in(late)
    assert tenants.ahead({"busy", "late"}) == {"late"}
    assert tenants.ahead({"late"}) == frozenset(), "nobody waits whom it should let pass"
    tenants.forget(1)
    assert tenants.ahead({"busy"}) == frozenset()


@pytest.mark.parametrize("policy", ["static", "relserve", "shortest"])
def test_who_ages_is_passed_by_no_more_than_its_head_start(policy: PolicyName) -> None:
    def waiting_of_large(aging: float) -> float:
        settings = Settings(COST, Fairness(aging=aging))
        engine = Harness(policy=make_policy(policy, settings), **{**LIMITS, "max_num_seqs": 1})
        for row in range(6):
            engine.submit(numbered(36, start=100 * row).tolist(), 20)
        large = engine.engine.relqueries[0]
        for group in range(1, 80):
            engine.submit(numbered(10, start=1000 * group).tolist(), 4, group=group)
            engine.step()
        engine.run()
        assert large.latency is not None
        return large.latency.waiting

    assert waiting_of_large(0.0) > 2 * waiting_of_large(1e3)
