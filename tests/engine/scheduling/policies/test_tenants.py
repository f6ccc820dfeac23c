"""Tenants that compete get shares by their weights, within a slack; who asks alone gets all."""

from __future__ import annotations

from typing import Any

import pytest

from relquery.config import PolicyName
from relquery.engine.cost.linear import LinearCost
from relquery.engine.request.relquery import RelQuery
from relquery.engine.scheduling.policies.catalogue import Settings, make_policy
from relquery.engine.scheduling.policies.jobs.priority import SLACK, Fairness
from relquery.engine.scheduling.policies.jobs.tenants import OUTPUT, Tenants
from tests.engine.harness import Harness

COST = LinearCost(1e-3, 0.01, 1e-4, 0.03)
POLICIES: tuple[PolicyName, ...] = ("static", "relserve", "shortest")
STEP = 40
LIMITS: dict[str, Any] = {
    "block_size": 4,
    "cache_tokens": 4000,
    "max_num_batched_tokens": STEP,
    "max_num_seqs": 4,
}


LONG = 70
"""Tokens of prompts that no step but their own may compute."""
KINDS: dict[str, list[dict[str, Any]]] = {
    "decode": [{"max_tokens": 4}],
    "one pass": [{"max_tokens": 1}],
    "one long pass": [{"max_tokens": 1, "length": LONG}],
    "labels": [{"max_tokens": 1, "labels": ((1, 2), (1, 3, 4), (5,)), "scored": True}],
    "mixed": [{"max_tokens": 1}, {"max_tokens": 4}, {"max_tokens": 1, "length": LONG}],
}


def served(weights: dict[str, float], policy: PolicyName, kind: str) -> tuple[float, float]:
    """Tokens of service that a tenant of small and one of large relQueries get, both waiting."""
    given = Settings(COST, Fairness(weights=weights))
    engine = Harness(policy=make_policy(policy, given), max_input=LONG, **LIMITS)
    everyone: list[RelQuery] = []
    for group in range(160):
        tenant, rows = ("large", 12) if group % 2 else ("small", 2)
        options = dict(KINDS[kind][group // 2 % len(KINDS[kind])])
        length = options.pop("length", 20)
        everyone.append(engine.submit_rows(group, rows, length, tenant=tenant, **options))

    def service(tenant: str) -> float:
        of_tenant = [each for each in everyone if each.tenant == tenant]
        return sum(each.computed_prompts + OUTPUT * each.drawn_tokens for each in of_tenant)

    while service("small") + service("large") < 6_000:
        engine.engine.step()
    waiting = {each.tenant for each in engine.engine.relqueries.values()}
    assert waiting == {"small", "large"}, "none ran dry"
    return service("small"), service("large")


EVERY: list[tuple[PolicyName, float, str]] = [
    (policy, weight, kind) for policy in POLICIES for weight in (1.0, 3.0) for kind in KINDS
]
SOME: list[tuple[PolicyName, float, str]] = [
    *(("static", 3.0, "one pass"), ("relserve", 1.0, "labels"), ("shortest", 3.0, "mixed"))
]


@pytest.mark.parametrize(
    ("policy", "weight", "kind"),
    [each if each in SOME else pytest.param(*each, marks=pytest.mark.long) for each in EVERY],
)
def test_tenants_that_wait_get_service_by_weight(
    policy: PolicyName, weight: float, kind: str
) -> None:
    small, large = served({"large": weight}, policy, kind)
    # The slack, the step that exceeded it, and what was taken in before and goes on to its end.
    longest = max(STEP, *(options.get("length", 20) for options in KINDS[kind]))
    slack = SLACK * STEP + longest + LIMITS["max_num_seqs"] * (20 + OUTPUT * 4)
    assert abs(large / weight - small) <= slack
    assert small + large > 10 * slack


def test_one_tenant_changes_nothing() -> None:
    def end(tenant: str) -> list[float | None]:
        engine = Harness(policy=make_policy("shortest", Settings(COST)), **LIMITS)
        relqueries = [
            engine.submit_rows(group, rows, 15, 3, tenant=tenant)
            for group, rows in enumerate((7, 2, 5, 1))
        ]
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
    late.drawn_tokens = 50
    tenants.take_in(late)
    assert tenants.ahead({"busy", "late"}) == frozenset(), "ahead by the slack, and no more"
    late.drawn_tokens = 60
    tenants.take_in(late)
    assert tenants.ahead({"busy", "late"}) == {"late"}
    assert tenants.ahead({"late"}) == frozenset(), "nobody waits whom it should let pass"
    tenants.forget(1)
    assert tenants.ahead({"busy"}) == frozenset()


@pytest.mark.parametrize(
    "policy", ["static", *(pytest.param(p, marks=pytest.mark.long) for p in POLICIES[1:])]
)
def test_who_ages_is_passed_by_no_more_than_its_head_start(policy: PolicyName) -> None:
    def waiting_of_large(aging: float) -> float:
        settings = Settings(COST, Fairness(aging=aging))
        engine = Harness(policy=make_policy(policy, settings), **{**LIMITS, "max_num_seqs": 1})
        large = engine.submit_rows(0, 6, 36, 20)
        for group in range(1, 80):
            engine.submit_rows(group, 1, 10, 4)
            engine.step()
        engine.run()
        assert large.latency is not None
        return large.latency.waiting

    assert waiting_of_large(0.0) > 2 * waiting_of_large(1e3)


def test_a_relquery_that_comes_back_is_not_counted_twice() -> None:
    tenants = Tenants({}, slack=0.0)
    one, other = RelQuery(0, 0.0, "a"), RelQuery(1, 0.0, "b")
    for each in (one, other, RelQuery(2, 0.0, "a")):
        tenants.take_in(each)
    one.computed_prompts, other.computed_prompts = 10, 15
    for each in (one, other):
        tenants.take_in(each)
    tenants.forget(0)
    tenants.take_in(one)  # more rows of it have come
    assert tenants.ahead("ab") == {"b"}
