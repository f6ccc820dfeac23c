"""With aging, no stream of short jobs keeps a long one waiting for ever (paper 004, §6.3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.config import EngineConfig, PolicyName
from relquery.engine.cost.accelerators import Served
from relquery.engine.cost.linear import LinearCost
from relquery.engine.scheduling.policies.catalogue import Settings, make_policy
from relquery.engine.scheduling.policies.jobs.priority import Fairness
from relquery.traces.simulate import approximate_tokens, simulate
from relquery.traces.trace import TracedQuery

POLICIES: tuple[PolicyName, ...] = ("srjf-static", "srjf")
COST = LinearCost(1e-3, 0.01, 1e-3, 0.03)
LIMITS = EngineConfig(block_size=4, max_num_batched_tokens=64, max_num_seqs=8, cache_tokens=512)


def job(arrival: float, name: str, words: int, answer: int = 1) -> TracedQuery:
    text = f"{name} " + "word " * words
    return TracedQuery(arrival, "filter", "t", "", (text,), answer, (answer,))


def tokens(query: TracedQuery) -> int:
    """Of the prompt and of what is decoded after it."""
    decoded = query.output_limit if query.output_limit > 1 else 0
    return len(approximate_tokens(next(iter(query.prompts)))) + decoded


def begun(queries: list[TracedQuery], policy: PolicyName, aging: float) -> list[tuple[float, int]]:
    """When each was begun, with its place in the trace, in order."""
    given_ = Settings(COST, Fairness(aging=aging))
    run = simulate(queries, make_policy(policy, given_), Served(COST, LIMITS))
    assert len(run.outcomes) == len(queries)
    places = {id(query): place for place, query in enumerate(queries)}
    return sorted(
        (outcome.query.arrival + outcome.latency.waiting, places[id(outcome.query)])
        for outcome in run.outcomes
    )


@st.composite
def streams(draw: st.DrawFn) -> list[TracedQuery]:
    """Jobs of all sizes at any rate, far above what the engine bears too, some with equal heads."""
    queries, arrival = [], 0.0
    for number in range(draw(st.integers(2, 40))):
        words = draw(st.sampled_from([1, 2, 3, 60]))
        name = draw(st.sampled_from(["same", f"job {number}"]))
        queries.append(job(arrival, name, words, draw(st.sampled_from([1, 1, 1, 4]))))
        arrival += draw(st.sampled_from([0.0, 0.001, 0.02, 0.2, 1.0]))
    return queries


@given(policy=st.sampled_from(POLICIES), aging=st.sampled_from([0.05, 1.0]), queries=streams())
def test_only_who_comes_within_a_known_time_can_pass_a_job(
    policy: PolicyName, aging: float, queries: list[TracedQuery]
) -> None:
    order = begun(queries, policy, aging)
    for at, (start, place) in enumerate(order):
        waiting = queries[place]
        # Its score is no more than its whole time; that of a later one, without any, is as much
        # higher as it came later.
        bound = waiting.arrival + COST.prefill_slope * tokens(waiting) / aging
        for before, other in order[:at]:
            if waiting.arrival <= before < start:
                assert queries[other].arrival <= bound + 1e-9


def waited(policy: PolicyName, aging: float, shorts: int) -> float:
    """Seconds that a long job waits while twice as many short ones come as can be served."""
    each = COST.seconds(len(approximate_tokens("short 0 word ")), 0)
    stream = [job(each * n / 2, f"short {n}", 1) for n in range(shorts)]
    queries = [stream[0], job(0.0, "long", 100), *stream[1:]]
    return next(start for start, place in begun(queries, policy, aging) if place == 1)


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
def test_without_aging_the_wait_grows_with_the_stream_and_with_it_it_does_not(
    policy: PolicyName,
) -> None:
    aged = [waited(policy, 0.1, shorts) for shorts in (200, 400, 800)]
    assert aged[0] == aged[1] == aged[2]
    never = [waited(policy, 0.0, shorts) for shorts in (200, 400, 800)]
    assert never[1] > 1.9 * never[0]
    assert never[2] > 1.9 * never[1]
    assert never[0] > aged[0]
