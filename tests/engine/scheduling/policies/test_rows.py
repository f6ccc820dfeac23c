"""Declared rows that have not come yet count as remaining work."""

from __future__ import annotations

from typing import Any

import pytest

from relquery.config import PolicyName
from relquery.engine.cost.linear import LinearCost
from relquery.engine.request.clients.declared import NOTHING, Declared
from relquery.engine.request.relquery import RelQuery
from relquery.engine.scheduling.policies.catalogue import Settings, make_policy
from relquery.engine.scheduling.policies.jobs.remaining import Remaining
from tests.engine.harness import Harness, for_each, numbered

COST = LinearCost(1e-3, 0.01, 1e-4, 0.03)
BY_WORK: list[PolicyName] = ["static", "relserve", "relserve-aba", "relserve-dpu", "shortest"]


def harness(name: PolicyName, **limits: Any) -> Harness:
    settings = {"cache_tokens": 4000, "max_num_batched_tokens": 40, **limits}
    return Harness(policy=make_policy(name, Settings(COST)), **settings)


def submit(engine: Harness, group: int, rows: int, declared: Declared = NOTHING) -> RelQuery:
    return engine.submit_rows(group, rows, 20, 5, declared=declared)


def ends(name: PolicyName, *, declares: bool) -> tuple[float, float]:
    """When a client that sends 40 rows two at a time has its answers, and one that sends 8 rows."""
    engine = harness(name, max_num_seqs=2)
    declared = Declared("trickle", 40) if declares else NOTHING
    small = None
    for number in range(20):
        trickle = submit(engine, 10 + number, 2, declared)
        if number == 2:
            small = submit(engine, 5, 8)
        while trickle.open:
            engine.step()
    engine.run()
    assert small is not None
    assert trickle.ended is not None
    assert small.ended is not None
    return trickle.ended, small.ended


@for_each("name", BY_WORK)
def test_who_sends_many_rows_a_few_at_a_time_is_large(name: PolicyName) -> None:
    trickle, small = ends(name, declares=False)
    assert small > trickle, "it has to wait until the last of the others has come"
    trickle, small = ends(name, declares=True)
    assert small < trickle / 2


@for_each("shared", [False, True])
def test_a_part_of_the_rows_is_estimated_as_all_of_them(shared: bool) -> None:
    def estimate(rows: int, declared: Declared) -> float:
        engine = harness("fcfs", max_num_seqs=8)
        relquery = submit(engine, 0, rows, declared)
        state = engine.engine._state()
        return Remaining(COST, shared=shared)(relquery, state)

    whole = estimate(40, NOTHING)
    assert estimate(3, Declared("a", 40)) == pytest.approx(whole)
    assert estimate(40, Declared("a", 10)) == pytest.approx(whole)  # more came than was declared
    assert estimate(3, NOTHING) < whole / 5
    many = estimate(3, Declared("a", 2**40))
    assert many == pytest.approx(2**40 / 40 * whole, rel=0.1)


def test_of_rows_that_have_not_come_as_much_is_cached_as_of_those_that_have() -> None:
    engine = harness("fcfs")
    prompt = numbered(20, start=50).tolist()
    for _ in range(10):
        relquery_of = engine.submit(prompt, 5, declared=Declared("a", 100), group=0)
        engine.run()
    relquery = engine.engine._open.named.find("", "a", 0.0)
    assert relquery is not None
    engine.submit(prompt, 5, declared=Declared("a", 100), group=0)
    engine.step()
    remaining = Remaining(LinearCost(1.0, 0.0, 0.0, 0.0))
    # Of 11 prompts of 20 tokens, the first was computed, and of the others the last block.
    assert relquery_of.group == relquery.id
    seconds = remaining(relquery, engine.engine._state())
    assert seconds == pytest.approx(89 * (20 + 10 * 4) / 11)
