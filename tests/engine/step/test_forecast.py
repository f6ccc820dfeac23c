"""Forecasts of a relQuery's end: right where nothing is uncertain, and without any effect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from relquery.config import POLICIES, PolicyName
from relquery.engine.clock import VirtualClock
from relquery.engine.cost.linear import LinearCost
from relquery.engine.executor import SimulatedExecutor
from relquery.engine.loop import Loop
from relquery.engine.request.clients.declared import Declared
from relquery.engine.request.relquery import RelQuery
from relquery.engine.request.request import Request
from relquery.engine.request.rules import Rules
from relquery.engine.scheduling.policies.catalogue import Settings, make_policy
from relquery.engine.step.forecast import Experience
from tests.engine.harness import Harness, numbered

COST = LinearCost(1e-3, 0.0, 1e-4, 0.03)
LIMITS: dict[str, Any] = {
    "block_size": 4,
    "cache_tokens": 4000,
    "max_num_batched_tokens": 400,
    "prefix_caching": False,
}


def loop_of(policy: PolicyName, **limits: Any) -> Loop:
    harness = Harness(**{**LIMITS, **limits})
    clock = VirtualClock()
    executor = SimulatedExecutor(clock, COST, answer=lambda request, position: 1)
    return Loop(executor, harness.config, clock, make_policy(policy, Settings(COST)), COST)


def submit(loop: Loop, group: int, rows: int, prompt: int, limit: int) -> RelQuery:
    for row in range(rows):
        request = Request(1000 * group + row, numbered(prompt, start=row), limit, group=group)
        relquery = loop.submit(request)
    return relquery


@pytest.mark.parametrize("policy", POLICIES)
def test_one_relquery_alone_takes_as_long_as_foreseen(policy: PolicyName) -> None:
    loop = loop_of(policy)
    relquery = submit(loop, 0, 10, 30, 20)
    foreseen = loop.forecast(0)
    list(loop.run())
    assert relquery.latency is not None
    assert foreseen == pytest.approx(relquery.latency.total, rel=0.1)
    assert loop.forecast(0) == 0.0


@pytest.mark.parametrize("policy", ["fcfs", "relserve", "shortest"])
def test_who_is_served_later_is_told_so(policy: PolicyName) -> None:
    loop = loop_of(policy, max_num_seqs=4)
    long, short = submit(loop, 0, 40, 30, 20), submit(loop, 1, 2, 30, 5)
    told = {each.id: loop.forecast(each.id) for each in (long, short)}
    list(loop.run())
    for each in (long, short):
        assert each.latency is not None
        assert told[each.id] == pytest.approx(each.latency.total, rel=0.35)
    assert (told[1] < told[0]) == (policy != "fcfs")  # type: ignore[operator]


def test_asking_changes_nothing() -> None:
    def ends(asking: bool) -> list[float | None]:
        loop = loop_of("relserve", max_num_seqs=8, prefix_caching=True)
        relqueries = []
        for group, rows in enumerate((30, 4, 17, 9, 25)):
            relqueries.append(submit(loop, group, rows, 20 + group, 5 * group + 1))
            for _ in range(3):
                if asking:
                    assert all(loop.forecast(number) is not None for number in range(group + 1))
                loop.step()
        while loop.relqueries:
            if asking:
                loop.forecast(4)
            loop.step()
        return [relquery.ended for relquery in relqueries]

    assert ends(asking=True) == ends(asking=False)


def test_without_costs_nothing_is_told() -> None:
    harness = Harness()
    harness.submit([1, 2, 3])
    assert harness.engine.forecast(0) is None


def test_experience_is_of_what_was_seen() -> None:
    loop = loop_of("fcfs", prefix_caching=True)
    assert (loop.experience.miss_ratio, loop.experience.length_ratio) == (1.0, 1.0)
    for number in (0, 1):
        request = Request(
            number, numbered(41), 10, rules=Rules(stop=lambda out: len(out) >= 4), group=number
        )
        loop.submit(request)
        list(loop.run())
    seen = replace(loop.experience, measured=0.0, predicted=0.0)
    assert seen == Experience(admitted=82, computed=42, limit=20, drawn=8)
    assert loop.experience.pace == pytest.approx(1.0)
    assert loop.experience.miss_ratio == pytest.approx(42 / 82)
    assert loop.experience.length_ratio == pytest.approx(0.4)


def test_costs_that_are_wrong_are_corrected_by_the_steps_seen() -> None:
    harness = Harness(**LIMITS)
    clock = VirtualClock()
    executor = SimulatedExecutor(clock, COST, answer=lambda request, position: 1)
    wrong = LinearCost(*(100 * each for each in (1e-3, 0.0, 1e-4, 0.03)))
    loop = Loop(executor, harness.config, clock, make_policy("fcfs"), wrong)
    first = submit(loop, 0, 10, 30, 20)
    foreseen = loop.forecast(0)
    list(loop.run())
    assert first.latency is not None
    assert foreseen == pytest.approx(100 * first.latency.total, rel=0.1)
    second = submit(loop, 1, 10, 30, 20)
    foreseen = loop.forecast(1)
    list(loop.run())
    assert second.latency is not None
    assert foreseen == pytest.approx(second.latency.total, rel=0.1)


def test_rows_that_have_not_come_are_foreseen() -> None:
    def told(rows: int, declared: int | None) -> float | None:
        loop = loop_of("shortest")
        for row in range(rows):
            request = Request(row, numbered(30, start=row), 20)
            loop.submit(request, declared=Declared("a", declared))
        return loop.forecast(0)

    assert told(4, 600) == pytest.approx(told(600, None))
    assert told(4, 2**40) == pytest.approx(2**40 / 600 * (told(600, None) or 0), rel=0.3)
