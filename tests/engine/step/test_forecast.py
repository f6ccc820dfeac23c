"""Forecasts of a relQuery's end, and refusals by them: without any effect on what is served."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from relquery.config import POLICIES, PolicyName
from relquery.engine.cost import LinearCost
from relquery.engine.executor import SimulatedExecutor, VirtualClock
from relquery.engine.loop import Loop
from relquery.engine.requests.declared import Declared
from relquery.engine.requests.relquery import RelQuery
from relquery.engine.requests.request import Request, Rules
from relquery.engine.scheduling.plan import Experience
from relquery.engine.scheduling.policies.catalogue import PolicySettings, make_policy
from relquery.errors import DeadlineError, RequestError
from tests.engine.harness import Harness, for_each, latency_of, numbered

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
    return Loop(executor, harness.config, clock, make_policy(policy, PolicySettings(COST)), COST)


def submit(
    loop: Loop, group: int, rows: int, prompt: int = 30, limit: int = 10, **declared: Any
) -> RelQuery:
    """Prompts of 30 tokens take 0.03 s each; a token of all answers takes 0.03 s or more."""
    for row in range(rows):
        request = Request(1000 * group + row, numbered(prompt, start=row), limit, group=group)
        relquery = loop.submit(request, declared=Declared(**declared))
    return relquery


@for_each("policy", POLICIES)
def test_one_relquery_alone_takes_as_long_as_foreseen(policy: PolicyName) -> None:
    loop = loop_of(policy)
    relquery = submit(loop, 0, 10, 30, 20)
    foreseen = loop.forecast(0)
    list(loop.run())
    assert foreseen == pytest.approx(latency_of(relquery).total, rel=0.1)
    assert loop.forecast(0) == 0.0


@for_each("policy", ["fcfs", "relserve", "shortest"])
def test_who_is_served_later_is_told_so(policy: PolicyName) -> None:
    loop = loop_of(policy, max_num_seqs=4)
    long, short = submit(loop, 0, 40, 30, 20), submit(loop, 1, 2, 30, 5)
    told = {each.id: loop.forecast(each.id) for each in (long, short)}
    list(loop.run())
    for each in (long, short):
        assert told[each.id] == pytest.approx(latency_of(each).total, rel=0.35)
    assert (told[1] < told[0]) == (policy != "fcfs")  # type: ignore[operator]


@for_each("policy", ["relserve", "srjf"])
def test_asking_changes_nothing(policy: PolicyName) -> None:
    def ends(asking: bool) -> list[float | None]:
        loop = loop_of(policy, max_num_seqs=8, prefix_caching=True)
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
    assert foreseen == pytest.approx(100 * latency_of(first).total, rel=0.1)
    second = submit(loop, 1, 10, 30, 20)
    foreseen = loop.forecast(1)
    list(loop.run())
    assert foreseen == pytest.approx(latency_of(second).total, rel=0.1)


def test_rows_that_have_not_come_are_foreseen() -> None:
    def told(rows: int, declared: int | None) -> float | None:
        loop = loop_of("shortest")
        for row in range(rows):
            request = Request(row, numbered(30, start=row), 20)
            loop.submit(request, declared=Declared("a", declared))
        return loop.forecast(0)

    assert told(4, 600) == pytest.approx(told(600, None))
    assert told(4, 2**40) == pytest.approx(2**40 / 600 * (told(600, None) or 0), rel=0.3)


# ---- deadlines that cannot be kept


def experienced(policy: PolicyName) -> Loop:
    """A loop that has seen answers of their maximum length."""
    loop = loop_of(policy)
    submit(loop, 0, 2)
    list(loop.run())
    return loop


def accepts(loop: Loop, group: int, rows: int, deadline: float, limit: int = 10) -> bool:
    relquery = submit(loop, group, rows, limit=limit, deadline=deadline)
    try:
        loop.check_deadline(relquery)
    except DeadlineError:
        for request in list(relquery.waiting):
            loop.withdraw(request)
        return False
    return True


@for_each("policy", POLICIES)
def test_what_can_be_in_time_by_itself_is_accepted_and_otherwise_refused(
    policy: PolicyName,
) -> None:
    loop = experienced(policy)
    assert not accepts(loop, 1, 10, 0.55)
    assert not loop.relqueries
    assert not loop.waiting
    assert accepts(loop, 2, 10, 0.7)
    requests = list(loop.run())
    assert all(request.error is None for request in requests)
    assert len(requests) == 10


@for_each("policy, accepted", [("fcfs", False), ("shortest", True), ("static", True)])
def test_the_order_of_the_policy_decides(policy: PolicyName, accepted: bool) -> None:
    loop = experienced(policy)
    submit(loop, 1, 60)  # 2.1 s
    assert accepts(loop, 2, 5, 1.0) == accepted
    assert accepts(loop, 3, 70, 4.0) == accepted  # the largest, but it will be pressed
    assert len(loop.relqueries) == 1 + 2 * accepted


def test_earlier_deadlines_are_in_the_way_and_later_ones_are_not() -> None:
    loop = experienced("shortest")
    assert accepts(loop, 1, 30, 2.0)  # 1.2 s
    assert not accepts(loop, 2, 40, 2.1)
    assert accepts(loop, 3, 40, 1.9)


def test_as_long_as_no_answer_was_seen_only_the_impossible_is_refused() -> None:
    loop = loop_of("shortest")
    assert accepts(loop, 1, 1, 0.2, limit=1000)
    assert not accepts(loop, 2, 10, 0.2, limit=1000)
    list(loop.run())


def test_where_costs_are_not_known_nothing_is_refused() -> None:
    loop = loop_of("fcfs")
    loop._cost = None
    assert accepts(loop, 0, 10, 1e-9)
    (*requests,) = loop.run()
    assert all("deadline" in str(request.error) for request in requests)


def test_the_error_says_how_long_it_would_take_and_travels() -> None:
    error = DeadlineError(12.345, 3.0)
    assert isinstance(error, RequestError)
    assert error.estimate == 12.345
    assert "in 12.3 s, but the deadline is in 3 s" in str(error)
    assert "passed 0.5 s ago" in str(DeadlineError(12.345, -0.5))
    again = pickle.loads(pickle.dumps(error))
    assert (again.estimate, str(again)) == (error.estimate, str(error))


def test_a_refused_submit_leaves_a_named_relquery_as_it_was() -> None:
    loop = experienced("shortest")
    declared = Declared("a", 40, 1.5)
    first, second = (Request(100 + limit, numbered(30), limit, group=1) for limit in (10, 7))
    for request in (first, second):
        relquery = loop.submit(request, declared=declared)

    def known() -> tuple[Any, ...]:
        totals = relquery.size, relquery.prompt_tokens, relquery.allowed_tokens
        return *totals, relquery.output_limit, relquery.deadline

    before = known()
    late = [Request(2 + row, numbered(30), 1000, group=2) for row in range(5)]
    for request in late:
        assert loop.submit(request, declared=declared) is relquery
    with pytest.raises(DeadlineError):
        loop.check_deadline(relquery)
    for request in late:
        loop.withdraw(request)
    assert known() == before
    assert list(loop.run()) == [second, first]
    assert first.error is second.error is None
