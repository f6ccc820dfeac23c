"""Nobody waits longer than the threshold allows, in any load that the engine can bear."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines import Scheduler, make_policy
from relquery.config import EngineConfig, PolicyName
from relquery.engine.cost import LinearCost
from relquery.engine.machines import Served
from relquery.engine.scheduling.plan import Memo, Plan, Policy, State
from relquery.engine.scheduling.policies.catalogue import PolicySettings
from relquery.engine.scheduling.policies.priority import Fairness
from relquery.traces.simulate import Outcome, ServedTrace, approximate_tokens, simulate
from relquery.traces.trace import TracedQuery
from tests.engine.harness import for_each

COST = LinearCost(1e-3, 0.01, 1e-3, 0.03)
LIMITS = EngineConfig(
    block_size=4, max_num_batched_tokens=64, max_num_seqs=12, cache_tokens=256, prefix_caching=False
)
BATCH = COST.seconds(64, 12)
"""Seconds of the longest step."""
FCFS = PolicySettings(COST)
PRIORITIES: tuple[PolicyName, ...] = ("static", "relserve", "shortest")


@st.composite
def loads(draw: st.DrawFn) -> list[TracedQuery]:
    """RelQueries that arrive at about two thirds of what the engine bears, or slower.

    Up to three come at the same time; the next after what these ask for.
    """
    queries: list[TracedQuery] = []
    arrival = 0.0
    for _ in range(draw(st.integers(2, 8))):
        asked = 0.0
        for number in range(draw(st.integers(1, 3))):
            rows = draw(st.integers(1, 15))
            words = draw(st.integers(1, 30))
            outputs = draw(st.lists(st.integers(1, 20), min_size=rows, max_size=rows))
            name = f"{len(queries)} {number}"
            text = tuple(f"{name} {row} " + "word " * words for row in range(rows))
            longest = max(outputs)
            queries.append(TracedQuery(arrival, "filter", "t", "", text, longest, tuple(outputs)))
            asked += rows * (2 * words + 4) * COST.prefill_slope + sum(outputs) * 0.004 + 0.1
        arrival += draw(st.sampled_from([1.0, 2.0, 3.0])) * asked
    return queries


def in_turn(policy: Policy, threshold: float) -> Policy:
    """The policy, which may begin nothing before the requests of relQueries that starve."""

    def checked(state: State, memo: Memo) -> tuple[Plan, Memo]:
        plan, memo = policy(state, memo)
        starving = [
            relquery
            for relquery in state.relqueries.values()
            if relquery.arrival + threshold * relquery.size <= state.now
        ]
        begun = {work.request for work in plan.work if work.request in state.waiting}
        if any(request not in begun for relquery in starving for request in relquery.waiting):
            assert {request.group for request in begun} <= {relquery.id for relquery in starving}
        return plan, memo

    return checked


def overdue(run: ServedTrace, threshold: float) -> float:
    """Seconds of the unit waiting time beyond the threshold and what came at the same time."""
    alone = {
        id(one.query): simulate(
            [one.query], make_policy("fcfs", FCFS), Served(COST, LIMITS)
        ).seconds
        for one in run.outcomes
    }

    def of(outcome: Outcome) -> float:
        beside = sum(
            alone[id(other.query)] - other.query.arrival
            for other in run.outcomes
            if other.query.arrival == outcome.query.arrival and other is not outcome
        )
        return (outcome.latency.waiting - beside) / len(outcome.query.rows) - threshold

    return max(map(of, run.outcomes))


@given(name=st.sampled_from(PRIORITIES), threshold=st.sampled_from([0.02, 0.3]), queries=loads())
def test_unit_waiting_time_exceeds_the_threshold_by_no_more_than_a_batch_and_what_came_with_it(
    name: PolicyName, threshold: float, queries: list[TracedQuery]
) -> None:
    policy = make_policy(name, PolicySettings(COST, Fairness(threshold)))
    run = simulate(queries, in_turn(policy, threshold), Served(COST, LIMITS))
    assert len(run.outcomes) == len(queries)
    assert overdue(run, threshold) <= BATCH + 1e-9


@for_each("name", PRIORITIES)
def test_what_has_been_begun_is_protected_like_what_has_not(name: PolicyName) -> None:
    large = TracedQuery(0.0, "filter", "t", "", ("word " * 25,) * 8, 9, (9,) * 8)
    small = [
        TracedQuery(0.01 + 0.05 * n, "filter", "t", "", ("word " * 10,) * 2, 3, (3,) * 2)
        for n in range(150)
    ]

    def computed(threshold: float | None) -> float:
        """When the last prompt of the large one is computed, of which the first begin at once."""
        policy = make_policy(name, PolicySettings(COST, Fairness(threshold)))
        run = simulate([large, *small], policy, Served(COST, LIMITS))
        (outcome,) = (one for one in run.outcomes if one.query is large)
        assert outcome.latency.waiting == 0
        return outcome.latency.core

    # Of its prompts two fit a step; some are computed before, the others from then on.
    bound = 8 * 0.1 + 4 * BATCH
    assert computed(0.1) <= bound
    assert computed(None) > 1.5 * bound


# ---- long jobs

ONE_BY_ONE: tuple[Scheduler, ...] = ("srjf-static", "srjf")
CACHING = EngineConfig(block_size=4, max_num_batched_tokens=64, max_num_seqs=8, cache_tokens=512)


def job(arrival: float, name: str, words: int, answer: int = 1) -> TracedQuery:
    text = f"{name} " + "word " * words
    return TracedQuery(arrival, "filter", "t", "", (text,), answer, (answer,))


def tokens(query: TracedQuery) -> int:
    """Of the prompt and of what is decoded after it."""
    decoded = query.output_limit if query.output_limit > 1 else 0
    return len(approximate_tokens(next(iter(query.prompts)))) + decoded


def begun(queries: list[TracedQuery], policy: Scheduler, aging: float) -> list[tuple[float, int]]:
    """When each was begun, with its place in the trace, in order."""
    given_ = PolicySettings(COST, Fairness(aging=aging))
    run = simulate(queries, make_policy(policy, given_), Served(COST, CACHING))
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


@given(policy=st.sampled_from(ONE_BY_ONE), aging=st.sampled_from([0.05, 1.0]), queries=streams())
def test_only_who_comes_within_a_known_time_can_pass_a_job(
    policy: Scheduler, aging: float, queries: list[TracedQuery]
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
