"""Deadlines: who would miss one goes first as long as it can be met, and nobody starves for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relquery.config import POLICIES, EngineConfig, PolicyName
from relquery.engine.clock import VirtualClock
from relquery.engine.cost.linear import LinearCost
from relquery.engine.executor import SimulatedExecutor
from relquery.engine.loop import Loop
from relquery.engine.request.clients.declared import NOTHING, Declared
from relquery.engine.request.relquery import RelQuery
from relquery.engine.request.request import Request
from relquery.engine.scheduling.policies.catalogue import Settings, make_policy
from relquery.engine.scheduling.policies.jobs.deadlines import Deadlines
from relquery.engine.scheduling.policies.jobs.priority import Fairness
from relquery.engine.scheduling.policies.jobs.remaining import Remaining
from relquery.prompt import Finish
from tests.engine.harness import for_each, numbered

COST = LinearCost(1e-3, 0.01, 1e-4, 0.03)
HEEDING: list[PolicyName] = ["static", "relserve", "shortest"]
ALL_HEEDING: list[PolicyName] = [
    *HEEDING, "relserve-pp", "relserve-dp", "relserve-dpu", "relserve-aba"
]  # fmt: skip


class Engine:
    """A loop in virtual time, whose steps cost what the policy believes."""

    def __init__(self, name: PolicyName, starvation: float | None = None, **limits: Any) -> None:
        settings = {"block_size": 4, "cache_tokens": 4000, "max_num_batched_tokens": 40}
        config = EngineConfig(**{**settings, "max_num_seqs": 2, **limits})
        self.clock = VirtualClock()
        executor = SimulatedExecutor(self.clock, COST, answer=lambda request, position: 1)
        policy = make_policy(name, Settings(COST, Fairness(starvation, weights={"b": 10.0})))
        self.loop = Loop(executor, config, self.clock, policy, COST)
        self.requests: list[Request] = []

    def submit(
        self,
        group: int,
        rows: int,
        *,
        prompt: int = 20,
        limit: int = 5,
        deadline: float | None = None,
        tenant: str = "",
    ) -> RelQuery:
        declared = NOTHING if deadline is None else Declared(deadline=deadline)
        for _ in range(rows):
            number = len(self.requests)
            request = Request(number, numbered(prompt, 100 * number), limit, group=group)
            relquery = self.loop.submit(request, tenant, declared=declared)
            self.requests.append(request)
        return relquery

    def run(self) -> list[Request]:
        return list(self.loop.run())


def end_of(relquery: RelQuery) -> float:
    assert relquery.ended is not None
    return relquery.ended


@for_each("name", HEEDING)
def test_a_deadline_is_met_that_would_be_missed_without(name: PolicyName) -> None:
    def end(deadline: float | None) -> float:
        """Small relQueries come so fast that the large one has never the least work."""
        engine = Engine(name)
        large = engine.submit(0, 12, deadline=deadline)
        for group in range(1, 60):
            engine.submit(group, 2)
            while large.open and len(engine.loop.waiting) > len(large.waiting) + 2:
                engine.loop.step()
        engine.run()
        assert large.answered == 12
        return end_of(large)

    assert end(None) > 8.0
    assert end(6.0) <= 6.0


@for_each("name", ALL_HEEDING)
def test_the_earliest_deadline_goes_first_and_takes_the_seats_of_who_has_time(
    name: PolicyName,
) -> None:
    engine = Engine(name)
    long = engine.submit(0, 2, limit=60)
    engine.loop.step()
    engine.loop.step()
    late = engine.submit(1, 2, deadline=0.9)
    soon = engine.submit(2, 2, limit=6, deadline=0.5)
    engine.run()
    assert end_of(soon) <= 0.5 + long.arrival + 0.1
    assert end_of(soon) < end_of(late) < end_of(long)
    assert (soon.answered, late.answered, long.answered) == (2, 2, 2)


@for_each("name", ALL_HEEDING)
def test_who_cannot_be_in_time_any_more_is_not_put_first(name: PolicyName) -> None:
    engine = Engine(name)
    hopeless = engine.submit(0, 12, deadline=0.3)
    small = engine.submit(1, 1)
    engine.run()
    assert end_of(small) < end_of(hopeless)
    assert hopeless.answered < 12


@for_each("name", HEEDING)
def test_a_tenant_that_is_ahead_is_in_time_too(name: PolicyName) -> None:
    def seconds(deadline: float | None) -> float:
        engine = Engine(name)
        engine.submit(1, 100, tenant="b", limit=9)
        engine.submit(2, 8, tenant="a")
        while 2 in engine.loop.relqueries:
            engine.loop.step()
        relquery = engine.submit(3, 2, tenant="a", limit=9, deadline=deadline)
        engine.run()
        assert relquery.answered == 2
        return end_of(relquery) - relquery.arrival

    assert seconds(None) > 0.8
    assert seconds(0.8) <= 0.8


@for_each("name", HEEDING)
@for_each(
    "limits, prompt",
    [
        ({"max_num_seqs": 1}, 20),
        ({"max_num_seqs": 2}, 20),
        ({"max_num_seqs": 5}, 20),
        ({"max_num_seqs": 8, "cache_tokens": 96}, 10),  # it needs more room than others leave
    ],
)
def test_who_starves_is_served_however_many_are_pressed(
    name: PolicyName, limits: dict[str, Any], prompt: int
) -> None:
    engine = Engine(name, starvation=1.0, **limits)
    large = engine.submit(0, 3, prompt=70, limit=8)
    group = met = 0
    while large.open:
        while len(engine.loop.waiting) - len(large.waiting) < 2:
            group += 1
            engine.submit(group, 1, prompt=prompt, deadline=0.3 + 0.1 * (group % 3))
        met += sum(one.finish is Finish.LENGTH for one in engine.loop.step() if one.group)
        assert engine.clock.now() < 20, "it starves"
    assert large.answered == 3
    assert end_of(large) > 3.0, "it had to wait until it starved"
    assert met > 10


@for_each("name", POLICIES)
def test_what_is_open_when_the_deadline_passes_ends_and_answers_stay(name: PolicyName) -> None:
    engine = Engine(name, max_num_seqs=1)
    relquery = engine.submit(0, 8, deadline=0.5)
    requests = list(engine.requests)
    other = engine.submit(1, 3)
    finished = engine.run()
    assert len(finished) == 11
    assert other.answered == 3
    assert relquery.answered < 8
    for request in requests:
        assert request.finished_at is not None
        is_late = request.finish is Finish.CANCELLED
        assert is_late == (request.error is not None)
        assert not is_late or "0.5 s after the arrival, passed" in str(request.error)
        assert not is_late or request.finished_at >= 0.5


def test_whether_one_is_pressed_follows_from_time_and_what_is_left() -> None:
    engine = Engine("fcfs")
    relquery = engine.submit(0, 1, limit=20, deadline=10.0)
    deadlines = Deadlines(Remaining(LinearCost(0.05, 0.0, 0.0, 0.05)))
    first = replace(engine.loop._state(), length_ratio=0.5)  # 20 + 10 tokens: 1.5 s
    deadlines.take_in(relquery, first)
    deadlines.update(first)
    seen = []
    for now in (0.0, 6.9, 7.0, 8.4, 8.5, 9.0):
        changed = deadlines.update(replace(first, now=now))
        seen.append((changed, dict(deadlines.pressed)))
    pressed = {0: 10.0}
    assert seen == [
        *((set(), {}), (set(), {}), ({0}, pressed)),
        *((set(), pressed), ({0}, {}), (set(), {})),
    ]
    deadlines.take_in(relquery, first)
    assert deadlines.update(replace(first, now=7.5)) == {0}
    deadlines.forget(0)
    assert not deadlines.pressed


def test_what_is_usual_changes_when_one_is_pressed() -> None:
    engine = Engine("fcfs")
    relquery = engine.submit(0, 1, limit=20, deadline=10.0)
    deadlines = Deadlines(Remaining(LinearCost(0.05, 0.0, 0.0, 0.05)))
    state = replace(engine.loop._state(), relqueries={0: relquery})
    deadlines.take_in(relquery, state)
    # Nothing is known: answers may have 20 tokens, or 1.
    assert not deadlines.update(replace(state, now=5.9))
    deadlines.update(replace(state, now=6.1))
    assert deadlines.pressed
    deadlines.update(replace(state, now=8.9))
    assert deadlines.pressed
    deadlines.update(replace(state, now=8.9, length_ratio=0.5))
    assert not deadlines.pressed
    deadlines.update(replace(state, now=8.9, length_ratio=0.05))
    assert deadlines.pressed
    deadlines.update(replace(state, now=8.9, length_ratio=0.05, pace=3.0))
    assert not deadlines.pressed
