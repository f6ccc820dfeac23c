"""Simulated service: exact repetition, true lengths, latencies that add up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from math import inf
from typing import Any

import pytest

from relquery.config import POLICIES, EngineConfig, PolicyName
from relquery.engine.clock import PacedClock
from relquery.engine.cost.accelerators import SERVED, Served
from relquery.engine.cost.linear import LinearCost
from relquery.engine.executor import SimulatedExecutor
from relquery.engine.loop import Loop
from relquery.engine.request.request import Request
from relquery.engine.scheduling.policies.catalogue import Settings, make_policy
from relquery.traces.serve import requests_of, serve
from relquery.traces.simulate import Run, approximate_tokens, simulate
from relquery.traces.trace import TracedQuery
from relquery.traces.workload import workload
from tests.engine.harness import for_each

TABLES = {"t": [{"name": f"item {i % 7}", "text": f"words {i} " * 9} for i in range(200)]}
MACHINE = Served(LinearCost(), EngineConfig(max_num_batched_tokens=256, cache_tokens=4096))
TRACE = workload(TABLES, 4.0, count=12, rows=(1, 12), seed=1)


def run(name: PolicyName, queries: list[TracedQuery] = TRACE) -> Run:
    return simulate(queries, make_policy(name, Settings(MACHINE.cost)), MACHINE)


@for_each("name", POLICIES)
def test_every_relquery_is_served_once_with_its_true_lengths_and_the_run_repeats(
    name: PolicyName,
) -> None:
    first = run(name)
    assert sorted(outcome.query.arrival for outcome in first.outcomes) == [
        query.arrival for query in TRACE
    ]
    for outcome in first.outcomes:
        assert outcome.output_tokens == sum(outcome.query.outputs)
        assert outcome.latency.waiting >= 0
        assert outcome.latency.core > 0
        assert outcome.latency.tail >= 0
    ended = [outcome.query.arrival + outcome.latency.total for outcome in first.outcomes]
    assert ended == sorted(ended)
    assert first.seconds == pytest.approx(ended[-1])
    assert run(name) == first


def test_a_relquery_alone_takes_what_its_steps_cost() -> None:
    query = TracedQuery(5.0, "filter", "t", "", ("a b c d",), 4, (3,))
    (outcome,) = run("fcfs", [query]).outcomes
    tokens = len(approximate_tokens("a b c d"))
    cost = MACHINE.cost
    assert outcome.latency.waiting == pytest.approx(0)
    assert outcome.latency.core == pytest.approx(cost.seconds(tokens, 0))
    assert outcome.latency.tail == pytest.approx(2 * cost.seconds(0, 1))


def test_equal_beginnings_are_equal_tokens() -> None:
    one, other = approximate_tokens("Name: Anton\nx"), approximate_tokens("Name: Anton\ny")
    assert one[:-1].tolist() == other[:-1].tolist()
    assert one[-1] != other[-1]
    assert len(approximate_tokens("")) == 0


@for_each("name", sorted(SERVED))
def test_costs_derived_from_public_figures_are_of_their_machines_order(name: str) -> None:
    served = SERVED[name]
    assert 1e-4 < served.cost.prefill_slope < 4e-4  # 2,500 to 10,000 prompt tokens a second
    assert 0.02 < served.cost.decode_intercept < 0.06  # 17 to 50 decode steps a second
    assert 10_000 < served.limits.cache_tokens < 60_000


def test_a_request_that_cannot_be_served_ends_neither_the_run_nor_its_relquery() -> None:
    long = "word " * 5_000
    part = TracedQuery(0.0, "filter", "t", "", ("short", long), 4, (2, 2))
    none = TracedQuery(0.1, "filter", "t", "", (long,), 4, (2,))
    empty = TracedQuery(0.0, "filter", "t", "", (), 4, ())
    outcomes = run("relserve", [part, none, empty, *TRACE]).outcomes
    assert len(outcomes) == len(TRACE) + 2
    by_query = {outcome.query: outcome for outcome in outcomes}
    assert (by_query[part].failed, by_query[part].output_tokens) == (1, 2)
    assert (by_query[none].failed, by_query[none].latency.total) == (1, 0.0)
    assert all(by_query[query].failed == 0 for query in TRACE)


@pytest.mark.parametrize("bound", [inf, pytest.param(1.3, marks=pytest.mark.long)])
def test_in_real_time_relqueries_end_in_the_same_order_and_after_the_same_time(
    bound: float,
) -> None:
    limits = EngineConfig(max_num_batched_tokens=64, max_num_seqs=6, cache_tokens=1024)
    paces = Served(LinearCost(5e-5, 5e-3, 3e-4, 5e-3), limits)
    sizes = [(8, 4), (2, 1), (5, 2), (1, 6), (3, 3)]  # rows, and words of each
    queries = [
        TracedQuery(
            0.0, "filter", "t", f"{at}", ("a b c d e " * words,) * rows, 9, (at + 1,) * rows
        )
        for at, (rows, words) in enumerate(sizes)
    ]

    def engine(clock: Any) -> Loop:
        policy = make_policy("shortest", Settings(paces.cost))
        return Loop(SimulatedExecutor(clock, paces.cost), paces.limits, clock, policy, paces.cost)

    expected = simulate(queries, make_policy("shortest", Settings(paces.cost)), paces)
    assert [one.query for one in expected.outcomes] != queries
    for _ in range(9):  # others may keep the machine busy in some of them
        clock, numbers = PacedClock(), count()

        def requests(query: TracedQuery, group: int, ids: Iterator[int] = numbers) -> list[Request]:
            return requests_of(query, group, ids, approximate_tokens)

        begin = clock.now()
        outcomes = [*serve(queries, engine(clock), clock, time.sleep, requests)]
        taken = clock.now() - begin
        assert [one.query for one in outcomes] == [one.query for one in expected.outcomes]
        assert taken >= expected.seconds
        if taken < bound * expected.seconds:
            break
    else:
        raise AssertionError(f"it took {taken} s, not {expected.seconds} s")
