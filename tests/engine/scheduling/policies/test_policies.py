"""Policies on a simulated engine: who goes first, and what a step holds."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import baselines
from benchmarks.baselines import Scheduler
from relquery.config import POLICIES, EngineConfig, PolicyName
from relquery.engine.cost import LinearCost
from relquery.engine.machines import Served
from relquery.engine.requests.declared import NOTHING, Declared
from relquery.engine.requests.relquery import RelQuery
from relquery.engine.scheduling.plan import Policy, State
from relquery.engine.scheduling.policies import fairness
from relquery.engine.scheduling.policies.catalogue import PolicySettings, make_policy
from relquery.engine.scheduling.policies.fairness import SEEN, Tail
from relquery.engine.scheduling.policies.priority import Fairness, Priorities
from relquery.engine.scheduling.policies.relserve import RelServe
from relquery.engine.scheduling.policies.remaining import Remaining
from relquery.engine.scheduling.policies.shortest import Shortest
from relquery.engine.scheduling.policies.steps import sarathi
from relquery.traces.simulate import simulate
from relquery.traces.trace import TracedQuery
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
    "cost, name, decodes_first",
    [
        # Steps of decodes cost much and prompts little: the two had better decode together.
        (LinearCost(1e-6, 1e-6, 1e-6, 1.0), "relserve", False),
        (LinearCost(1.0, 1e-6, 1e-6, 1e-6), "relserve", True),
        (LinearCost(1.0, 1e-6, 1e-6, 1e-6), "relserve-pp", False),
        (LinearCost(1e-6, 1e-6, 1e-6, 1.0), "relserve-dp", True),
        # Prompts that cost exactly what they save wait; equal priorities let prompts go first.
        (LinearCost(0.0, 4.0, 0.0, 1.0), "relserve", True),
        (LinearCost(0.0, 3.75, 0.0, 1.0), "relserve", False),
        (LinearCost(0.0, 0.0, 0.0, 0.0), "relserve-dp", False),
    ],
)
def test_in_transition_the_predicted_change_of_latencies_decides(
    cost: LinearCost, name: Scheduler, decodes_first: bool
) -> None:
    engine = harness(baselines.make_policy(name, PolicySettings(cost)))
    engine.submit_rows(0, 1, 10, 4)
    engine.step()
    engine.submit_rows(1, 2, 20, 4)
    engine.step()
    assert {group for group, _ in last_step(engine)} == ({0} if decodes_first else {1})


AGING = [name for name in POLICIES if name not in ("fcfs", "sarathi")]


@for_each("name", AGING)
@for_each("pace", [1.0, 50.0])
def test_waiting_makes_up_for_seconds_of_work_whatever_a_policy_ranks_by(
    name: PolicyName, pace: float
) -> None:
    slower = LinearCost(pace * 1e-3, pace * 0.01, pace * 1e-4, pace * 0.03)

    def order(aging: float) -> list[int]:
        policy = make_policy(name, PolicySettings(slower, Fairness(aging=aging)))
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
        policy = make_policy(name, PolicySettings(COST, Fairness(starvation)))
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
    policy = make_policy(name, PolicySettings(COST, Fairness(starvation=0.001)))
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


@for_each("rows, is_shared", [(1, False), (1, True), (6, True), (12, False)])
def test_of_equal_relqueries_the_first_to_come_is_the_first_to_begin(
    rows: int, is_shared: bool
) -> None:
    """Each of twelve clients asks again once it is answered; at first nothing runs or is cached."""
    engine = harness(make_policy("shortest", PolicySettings(COST)), max_num_seqs=4)
    everyone: list[RelQuery] = []
    while len(everyone) < 80:
        while sum(bool(each.open) for each in everyone) < 12:
            group = len(everyone)
            for row in range(rows):
                start = row if is_shared else 100 * len(engine.executor.requests)
                engine.submit(numbered(30, start=start), 5, group=group)
            everyone.append(engine.engine.relqueries[group])
        engine.step()
    begun = [each.started for each in everyone if each.started is not None]
    assert len(begun) > 60
    assert begun == sorted(begun)


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(1, 5), st.integers(4, 40), st.integers(1, 9)),
        min_size=2,
        max_size=20,
    ),
    st.sampled_from([1, 3, 8]),
)
def test_no_relquery_is_overtaken_by_one_that_came_later_with_at_least_as_much_work(
    loads: list[tuple[int, int, int, int]], seats: int
) -> None:
    engine = harness(make_policy("shortest", PolicySettings(COST)), max_num_seqs=seats)
    everyone: list[RelQuery] = []
    for group, (steps, rows, length, answer) in enumerate(loads):
        everyone.append(engine.submit_rows(group, rows, length, answer))
        for _ in range(steps):
            engine.step()
    engine.run()
    for later, (_, *more) in enumerate(loads):
        for earlier, (_, *less) in enumerate(loads[:later]):
            if all(one >= other for one, other in zip(more, less, strict=True)):
                begun = everyone[earlier].started, everyone[later].started
                assert begun[0] is not None
                assert begun[1] is not None
                assert begun[0] <= begun[1]


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
    policy = make_policy(name, PolicySettings(COST, Fairness(starvation=0.02)))
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
    return harness(make_policy(name, PolicySettings(COST)), **limits)


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


def test_a_part_of_the_rows_is_estimated_as_all_of_them() -> None:
    def estimate(rows: int, declared: Declared) -> float:
        engine = harness_of("fcfs", max_num_seqs=8)
        relquery = submit(engine, 0, rows, declared)
        state = engine.engine._state()
        return Remaining(COST)(relquery, state)

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


# ---- turns: the longest waits are those of first come, first served


class Oracle:
    """The same from the definition: nothing is kept but what has happened."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.jobs: dict[int, list[float]] = {}  # what is left, and the work of its longest answer
        self.came: list[tuple[int, float, float]] = []  # number, work done before, longest answer
        self.done = 0.0
        self.spent: dict[int, float] = {}
        self.first: dict[int, float] = {}
        self.ended: list[int] = []

    def arrive(self, number: int, work: float, last: float) -> None:
        self.came.append((number, self.done, last))
        self.jobs[number] = [work, last]
        self.spent[number], self.first[number] = 0.0, work

    def serve(self, number: int, work: float) -> None:
        self.done += work
        self.spent[number] += work
        self.jobs[number][0] -= work

    def end(self, number: int) -> None:
        del self.jobs[number]
        self.ended.append(number)

    def waits(self, bias: float) -> list[float]:
        """Under first come, first served: all that had come, less what was done, and an answer."""
        found = []
        for at, (_, since, last) in enumerate(self.came):
            numbers = [number for number, *_ in self.came[: at + 1]]
            left = sum(self.jobs[number][0] for number in numbers if number in self.jobs)
            done = sum(self.spent[number] for number in numbers)
            found.append(done + bias * left - since + last)
        return found

    def turns(self) -> dict[int, float]:
        if len(self.jobs) < 2:
            return {}
        ended = self.ended
        bias = 1.0
        if ended:
            bias = sum(self.spent[one] for one in ended) / sum(self.first[one] for one in ended)
        if self.noted is None:
            self.noted = float(np.quantile(self.waits(bias), fairness.QUANTILE))
        promised = (1 - fairness.MARGIN) * self.factor * self.noted
        places = {number: place for place, (number, *_) in enumerate(self.came, 1)}
        since = {number: done for number, done, _ in self.came}
        tight = []
        for number, (_, last) in self.jobs.items():
            before = sum(
                left for other, (left, _) in self.jobs.items() if places[other] <= places[number]
            )
            if bias * before + last >= since[number] + promised - self.done:
                tight.append(places[number])
        turns: dict[int, float] = {}
        for number in self.jobs:
            later = [at for at in tight if at >= places[number]]
            if later:
                turns[number] = min(later)
        return turns

    noted: float | None = None
    """The promise, until somebody arrives or ends."""


@pytest.mark.parametrize("exact", [False, True])
@given(seed=st.integers(0, 1 << 30), factor=st.sampled_from([0.25, 0.5, 1.0, 2.0]))
def test_turns_are_those_of_the_definition(exact: bool, seed: int, factor: float) -> None:
    """exact: estimates are right, in whole numbers, so that promises are filled exactly."""
    with pytest.MonkeyPatch.context() as patch:
        if exact:
            patch.setattr(fairness, "MARGIN", 0.0)
            patch.setattr(fairness, "QUANTILE", 1.0)
        check_turns(seed, factor, exact)


def check_turns(seed: int, factor: float, exact: bool) -> None:
    draw = random.Random(seed)
    tail, oracle = Tail(factor), Oracle(factor)
    number = 0
    known: dict[int, float] = {}
    finished: dict[int, float] = {}
    for _ in range(60):
        if not oracle.jobs or draw.random() < 0.4:
            number += 1
            work = float(draw.choice([1, 2, 4, 64]))  # whole numbers, so that sums are exact
            last = float(draw.choice([0, 1, 8]))
            oracle.arrive(number, work, last)
            oracle.noted = None
            tail.take_in(number, work, last, 0.0, 1)
            finished[number] = 0.0
        else:
            chosen = draw.choice([*oracle.jobs])
            left = oracle.jobs[chosen][0]
            served = min(left, float(draw.choice([1, 2, 16])))
            oracle.serve(chosen, served)
            finished[chosen] += served
            if served == left:
                tail.note(chosen, finished[chosen])
                oracle.end(chosen)
                oracle.noted = None
                tail.forget(chosen)
            elif exact or draw.random() < 0.5:
                tail.note(chosen, finished[chosen])
            else:
                work, last = float(draw.choice([left - served, 1, 32])), float(draw.choice([0, 2]))
                oracle.jobs[chosen] = [work, last]
                tail.take_in(chosen, work, last, finished[chosen], 1)
        changed = tail.update()
        expected = oracle.turns()
        assert tail.turns == expected
        differing = {n for n in oracle.jobs if known.get(n) != expected.get(n)}
        assert changed == differing
        known = expected


def test_estimates_that_move_are_no_work_that_is_done() -> None:
    tail = Tail(2.0)
    tail.take_in(1, 30.0, 0.0, 0.0, 1)
    tail.take_in(2, 5.0, 0.0, 0.0, 1)  # promised 70, of which work before it and its own fill 35
    for guess in (30.0, 25.0, 40.0, 20.0, 35.0) * 4:  # as its rows come
        tail.take_in(1, guess, 0.0, 0.0, 1)
        tail.update()
        assert not tail.turns
    tail.note(1, 30.0)
    tail.note(2, 4.0)
    tail.take_in(1, 30.0, 0.0, 30.0, 1)  # more than was thought
    tail.take_in(2, 5.0, 0.0, 4.0, 1)
    tail.update()
    assert tail.turns == {1: 2.0, 2: 2.0}


def test_a_relquery_that_comes_again_is_counted_once() -> None:
    whole, parts = Tail(1.0), Tail(1.0)
    for tail in (whole, parts):
        tail.take_in(1, 1.0, 0.0, 0.0, 1)
        tail.note(1, 1.0)
        tail.forget(1)
    for row in range(1, 40):
        parts.take_in(2, 1.0, 0.0, row - 1.0, row)
        parts.note(2, float(row))
        parts.forget(2)
        whole.take_in(100 + row, 1.0, 0.0, 0.0, 1)
        whole.note(100 + row, 1.0)
        whole.forget(100 + row)
    for tail in (whole, parts):
        tail.take_in(3, 1.0, 0.0, 0.0, 1)
        tail.take_in(4, 0.5, 0.0, 0.0, 1)
        tail.update()
    assert parts.turns == whole.turns
    assert parts._clock == whole._clock == 40.0


def test_only_the_last_arrivals_count() -> None:
    tail = Tail(1.0)
    for number in range(SEEN + 50):
        tail.take_in(number, 100.0 if number < 50 else 1.0, 0.0, 0.0, 1)
        tail.note(number, 100.0 if number < 50 else 1.0)
        tail.forget(number)
    first, second = SEEN + 50, SEEN + 51
    tail.take_in(first, 3.0, 0.0, 0.0, 1)
    tail.take_in(second, 1.0, 0.0, 0.0, 1)
    tail.update()  # one that takes 100 is forgotten, so nobody is promised more than about 1
    assert set(tail.turns) == {first, second}


TURNS_COST = LinearCost(1e-3, 0.01, 1e-3, 0.03)
ROOM = EngineConfig(block_size=4, max_num_batched_tokens=64, max_num_seqs=8, cache_tokens=4096)
TURNS = Served(TURNS_COST, ROOM)
FEW = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]


Seconds = np.ndarray[Any, np.dtype[np.float64]]


def _latencies(queries: list[TracedQuery], policy: PolicyName, tail: float | None) -> Seconds:
    given_ = PolicySettings(TURNS_COST, Fairness(tail=tail))
    return np.array(simulate(queries, make_policy(policy, given_), TURNS).latencies())


def _overload(seed: int) -> list[TracedQuery]:
    """More than can be served: most relQueries are short, and a few that come early are long."""
    draw = random.Random(seed)
    queries, arrival = [], 0.0
    for number in range(120):
        rows = 12 if number % 40 == 5 else draw.choice([1, 1, 2, 3, 5])
        texts = tuple(f"job {number} row {row} " + "word " * 8 for row in range(rows))
        queries.append(TracedQuery(arrival, "filter", "t", "", texts, 4, (4,) * rows))
        arrival += draw.expovariate(1 / 0.04)
    return queries


@pytest.mark.parametrize("seed", FEW)
def test_the_longest_waits_are_those_of_first_come_first_served(seed: int) -> None:
    queries = _overload(seed)
    first_come = _latencies(queries, "sarathi", None)
    shortest = _latencies(queries, "shortest", None)
    bounded = _latencies(queries, "shortest", 1.0)
    p99 = [float(np.percentile(each, 99)) for each in (first_come, shortest, bounded)]
    assert p99[1] > 1.3 * p99[0]  # what it is for
    assert p99[2] < 1.02 * p99[0]
    assert bounded.mean() < 0.9 * first_come.mean()
