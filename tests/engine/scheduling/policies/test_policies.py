"""Policies on a simulated engine: who goes first, and what a step holds."""

from __future__ import annotations

from typing import Any

import pytest

from relquery.config import POLICIES, PolicyName
from relquery.engine.cost.linear import LinearCost
from relquery.engine.request.clients.declared import NOTHING, Declared
from relquery.engine.request.relquery import RelQuery
from relquery.engine.scheduling.plan import Policy, State
from relquery.engine.scheduling.policies.catalogue import Settings, make_policy
from relquery.engine.scheduling.policies.jobs.priority import Fairness, Priorities
from relquery.engine.scheduling.policies.jobs.relserve import RelServe
from relquery.engine.scheduling.policies.jobs.remaining import Remaining
from relquery.engine.scheduling.policies.jobs.shortest import Shortest
from relquery.engine.scheduling.policies.sarathi import sarathi
from tests.engine.harness import Harness, expected_output, for_each, latency_of, numbered, spied
from tests.engine.scenarios import Scenario, last_step, scenarios

COST = LinearCost(1e-3, 0.01, 1e-4, 0.03)
LIMITS: dict[str, Any] = {"block_size": 4, "cache_tokens": 4000, "max_num_batched_tokens": 40}


def harness(policy: Policy, **limits: Any) -> Harness:
    return Harness(policy=policy, **{**LIMITS, **limits})


@pytest.mark.parametrize("scenario", scenarios(__file__), ids=str)
def test_scenarios(scenario: Scenario) -> None:
    scenario.run(**LIMITS)


@for_each(
    "cost, transition, decodes_first",
    [
        # Steps of decodes cost much and prompts little: the two had better decode together.
        (LinearCost(1e-6, 1e-6, 1e-6, 1.0), "adaptive", False),
        (LinearCost(1.0, 1e-6, 1e-6, 1e-6), "adaptive", True),
        (LinearCost(1.0, 1e-6, 1e-6, 1e-6), "prefill", False),
        (LinearCost(1e-6, 1e-6, 1e-6, 1.0), "decode", True),
        # Prompts that cost exactly what they save wait; equal priorities let prompts go first.
        (LinearCost(0.0, 4.0, 0.0, 1.0), "adaptive", True),
        (LinearCost(0.0, 3.75, 0.0, 1.0), "adaptive", False),
        (LinearCost(0.0, 0.0, 0.0, 0.0), "decode", False),
    ],
)
def test_in_transition_the_predicted_change_of_latencies_decides(
    cost: LinearCost, transition: Any, decodes_first: bool
) -> None:
    engine = harness(RelServe(cost, transition=transition))
    engine.submit_rows(0, 1, 10, 4)
    engine.step()
    engine.submit_rows(1, 2, 20, 4)
    engine.step()
    assert {group for group, _ in last_step(engine)} == ({0} if decodes_first else {1})


AGING = [name for name in POLICIES if name not in ("fcfs", "sarathi", "fifo")]


@for_each("name", AGING)
@for_each("pace", [1.0, 50.0])
def test_waiting_makes_up_for_seconds_of_work_whatever_a_policy_ranks_by(
    name: PolicyName, pace: float
) -> None:
    slower = LinearCost(pace * 1e-3, pace * 0.01, pace * 1e-4, pace * 0.03)

    def order(aging: float) -> list[int]:
        policy = make_policy(name, Settings(slower, Fairness(aging=aging)))
        engine = harness(policy, max_num_seqs=1)
        engine.submit(range(37), max_tokens=1, group=0)
        engine.executor.clock.advance(pace * 0.1)
        engine.submit(range(100, 107), max_tokens=1, group=1)
        return [request.id for request in engine.run()]

    # 30 tokens less are 0.03 s less, for which 0.1 s of waiting make up.
    assert order(0.29) == [1, 0]
    assert order(0.31) == [0, 1]


@for_each("name", ["relserve", "shortest"])
def test_a_relquery_that_waits_too_long_for_its_size_goes_first(name: PolicyName) -> None:
    def waiting_of_large(starvation: float | None) -> float:
        policy = make_policy(name, Settings(COST, Fairness(starvation)))
        engine = harness(policy, max_num_seqs=1)
        large = engine.submit_rows(0, 6, 40, 20)
        for group in range(1, 60):
            engine.submit_rows(group, 1, 10, 4)
            engine.step()
        engine.run()
        return latency_of(large).waiting

    # By default a step takes 20 ms or more, and there are always small ones to be served first.
    assert waiting_of_large(None) > 3.0
    assert waiting_of_large(0.1) == pytest.approx(0.6, abs=0.1)


@for_each("name", ["static", "relserve", "shortest"])
@for_each("seats, answer", [(1, 1), (4, 1), (4, 6), (8, 6)])
def test_who_starves_ends_however_many_starve_that_came_later(
    name: PolicyName, seats: int, answer: int
) -> None:
    policy = make_policy(name, Settings(COST, Fairness(starvation=0.001)))
    engine = harness(policy, max_num_seqs=seats, max_num_batched_tokens=64)
    large = engine.submit_rows(0, 6, 60, 4)
    group = 0
    for _ in range(400):
        if not large.open:
            break
        while len(engine.engine.waiting) - len(large.waiting) < 6:
            group += 1
            engine.submit_rows(group, 1, 20, answer)
        engine.step()
    assert not large.open, f"{large.answered} of 6 ended; {group} others came"


def test_only_relqueries_that_were_worked_on_are_estimated_again() -> None:
    asked: list[int] = []

    def estimate(relquery: RelQuery, state: State) -> float:
        asked.append(relquery.id)
        return float(relquery.id)

    def policy(state: State, memo: Any) -> Any:
        priorities = memo or Priorities(estimate, state.limits)
        priorities.update(state)
        return sarathi(state, None)[0], priorities

    engine = harness(policy, max_num_seqs=1)
    for group in range(50):
        engine.submit_rows(group, 1, 10, 3)
    engine.step()
    assert sorted(asked) == list(range(50))
    asked.clear()
    engine.step()
    assert asked == [0]
    engine.run()
    assert len(asked) <= 3 * 50


def test_a_relquery_is_estimated_again_once_a_share_of_it_has_moved() -> None:
    asked: dict[float, int] = {}

    def policy_with(moved: float) -> Policy:
        def estimate(relquery: RelQuery, state: State) -> float:
            asked[moved] = asked.get(moved, 0) + 1
            return 0.0

        def policy(state: State, memo: Any) -> Any:
            priorities = memo or Priorities(estimate, state.limits, moved=moved)
            priorities.update(state)
            return sarathi(state, None)[0], priorities

        return policy

    for moved in (0.0, 0.1):
        engine = harness(policy_with(moved), max_num_seqs=4)
        engine.submit_rows(0, 60, 10, 4)
        engine.run()
    assert 10 < 2 * asked[0.1] < asked[0.0]


Told = tuple[int, list[int], list[int] | None]
"""Tenants that wait; who was begun by a plan; who it says is ahead."""


def telling(policy: Policy) -> tuple[Harness, list[Told]]:
    """An engine, and what its policy said in each step in which it was asked."""
    told: list[Told] = []

    def asked(state: State, memo: Any) -> Any:
        plan, memo = policy(state, memo)
        begun = [work.request.id for work in plan.work if work.request not in state.running]
        ahead = None if plan.ahead is None else [request.id for request in plan.ahead]
        told.append((len({each.tenant for each in state.relqueries.values()}), begun, ahead))
        return plan, memo

    return harness(asked, max_num_seqs=4), told


def test_a_plan_says_who_begins_next() -> None:
    engine, told = telling(Shortest(COST))
    for group in range(3):
        engine.submit_rows(group, 12, 10, 3)
    engine.run()
    told = [each for each in told if each[2] is not None]
    order = [request for _, begun, _ in told for request in begun]
    assert len(order) == len(set(order)) > 20
    for at, (_, _, ahead) in enumerate(told):
        following = [request for _, begun, _ in told[at + 1 :] for request in begun]
        assert ahead is not None
        assert ahead[:4] == following[: len(ahead[:4])]


def test_a_policy_is_asked_each_step_where_moments_matter_and_while_several_tenants_wait() -> None:
    for starvation in (1.0, None):
        engine, told = telling(Shortest(COST, Fairness(starvation)))
        for group, tenant in enumerate("ab"):
            engine.submit_rows(group, 12, 10, 3, tenant=tenant)
        engine.run()
        alone = [ahead for tenants, _, ahead in told if tenants == 1]
        assert any(ahead is not None for ahead in alone) == (starvation is None)
        assert not any(ahead for tenants, _, ahead in told if tenants == 2)


def test_the_work_left_is_estimated_again_only_if_requests_have_begun_or_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = spied(monkeypatch, Remaining, "work")
    engine = harness(RelServe(COST, fairness=Fairness(tail=1.0)))
    for group in range(2):
        engine.submit_rows(group, 2, 10, 60)
    engine.run()
    assert len(engine.executor.steps) > 60
    assert 0 < len(asked) < 20


@for_each("name", ["static", "relserve", "shortest"])
def test_who_is_preempted_finds_its_states_again_if_nobody_took_their_place(
    name: PolicyName,
) -> None:
    policy = make_policy(name, Settings(COST, Fairness(starvation=0.02)))
    engine = harness(policy, max_num_seqs=1)
    long = engine.submit(range(33), 30, group=0)
    for _ in range(6):
        engine.step()
    urgent = engine.submit_rows(1, 1, 10, 2)
    while urgent.open:
        engine.step()
    before = engine.executor.computed
    engine.run()
    assert latency_of(urgent).waiting <= 0.02 + COST.seconds(0, 1), (
        "the seat was taken from the other"
    )
    # Of 33 tokens of the prompt and those drawn before, only those of the last block are computed
    # again; then one for each token of the answer but the last.
    assert engine.executor.computed - before <= 4 + 30
    assert long.output == expected_output(long)


# ---- rows that have not come

BY_WORK: list[PolicyName] = ["static", "relserve", "shortest"]


def harness_of(name: PolicyName, **limits: Any) -> Harness:
    return harness(make_policy(name, Settings(COST)), **limits)


def submit(engine: Harness, group: int, rows: int, declared: Declared = NOTHING) -> RelQuery:
    return engine.submit_rows(group, rows, 20, 5, declared=declared)


def ends(name: PolicyName, *, declares: bool) -> tuple[float, float]:
    """When a client that sends 40 rows two at a time has its answers, and one that sends 8 rows."""
    engine = harness_of(name, max_num_seqs=2)
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
        engine = harness_of("fcfs", max_num_seqs=8)
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
    engine = harness_of("fcfs")
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
