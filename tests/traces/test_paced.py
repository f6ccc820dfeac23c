"""A trace in real time is served as in virtual time."""

from __future__ import annotations

import time
from itertools import count

import pytest

from relquery.config import EngineConfig, PolicyName
from relquery.engine.clock import PacedClock
from relquery.engine.cost.accelerators import Served
from relquery.engine.cost.linear import LinearCost
from relquery.engine.executor import SimulatedExecutor
from relquery.engine.loop import Loop
from relquery.engine.scheduling.policies.catalogue import Settings, make_policy
from relquery.traces.serve import requests_of, serve
from relquery.traces.simulate import approximate_tokens, simulate
from relquery.traces.trace import TracedQuery

MACHINE = Served(
    LinearCost(5e-5, 5e-3, 3e-4, 5e-3),
    EngineConfig(max_num_batched_tokens=64, max_num_seqs=6, cache_tokens=1024),
)
SIZES = [(8, 4), (2, 1), (5, 2), (1, 6), (3, 3)]  # rows, and words of each
TRACE = [
    TracedQuery(
        arrival=0.0,
        kind="filter",
        table="t",
        instruction=f"Question {number}: ",
        rows=("a b c d e " * words,) * rows,
        output_limit=16,
        outputs=(number + 1,) * rows,
    )
    for number, (rows, words) in enumerate(SIZES)
]


def order_in_real_time(name: PolicyName) -> tuple[list[str], float]:
    """In which order relQueries end, and the seconds until then."""
    clock = PacedClock()
    begin = clock.now()
    executor = SimulatedExecutor(clock, MACHINE.cost)
    policy = make_policy(name, Settings(MACHINE.cost))
    engine = Loop(executor, MACHINE.limits, clock, policy, MACHINE.cost)
    numbers = count()
    outcomes = serve(
        TRACE,
        engine,
        clock,
        time.sleep,
        lambda query, group: requests_of(query, group, numbers, approximate_tokens),
    )
    return [outcome.query.instruction for outcome in outcomes], clock.now() - begin


def order_of(name: PolicyName) -> tuple[list[str], float]:
    """The same in virtual time."""
    run = simulate(TRACE, make_policy(name, Settings(MACHINE.cost)), MACHINE)
    return [outcome.query.instruction for outcome in run.outcomes], run.seconds


@pytest.mark.parametrize("name", ["fcfs", "sarathi", "static", "shortest", "relserve", "srjf"])
def test_relqueries_end_in_the_order_and_after_the_time_of_the_simulator(name: PolicyName) -> None:
    expected, seconds = order_of(name)
    runs = [order_in_real_time(name) for _ in range(2)]
    assert [order for order, _ in runs] == [expected] * 2
    assert all(taken >= seconds for _, taken in runs)
    assert min(taken for _, taken in runs) < 1.3 * seconds


def test_policies_order_this_trace_differently() -> None:
    assert order_of("fcfs")[0] != order_of("shortest")[0]
