"""Deadlines: who would miss one goes first as long as it can be met, and nobody starves for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from relquery.config import POLICIES, EngineConfig, PolicyName
from relquery.engine.cost import LinearCost
from relquery.engine.executor import SimulatedExecutor, VirtualClock
from relquery.engine.loop import Loop
from relquery.engine.requests.declared import NOTHING, Declared
from relquery.engine.requests.relquery import RelQuery
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.policies.catalogue import PolicySettings, make_policy
from relquery.engine.scheduling.policies.fairness import OUTPUT, Deadlines, Tenants
from relquery.engine.scheduling.policies.priority import SLACK, Fairness
from relquery.engine.scheduling.policies.remaining import Remaining
from relquery.prompt import Finish
from tests.engine.harness import Harness, for_each, latency_of, numbered

COST = LinearCost(1e-3, 0.01, 1e-4, 0.03)
HEEDING: list[PolicyName] = ["static", "relserve", "shortest"]


class Engine:
    """A loop in virtual time, whose steps cost what the policy believes."""

    def __init__(self, name: PolicyName, starvation: float | None = None, **limits: Any) -> None:
        settings = {"block_size": 4, "cache_tokens": 4000, "max_num_batched_tokens": 40}
        config = EngineConfig(**{**settings, "max_num_seqs": 2, **limits})
        self.clock = VirtualClock()
        executor = SimulatedExecutor(self.clock, COST, answer=lambda request, position: 1)
        policy = make_policy(name, PolicySettings(COST, Fairness(starvation, weights={"b": 10.0})))
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


@for_each("name", HEEDING)
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


@for_each("name", HEEDING)
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


# ---- tenants

SHARING: tuple[PolicyName, ...] = ("static", "relserve", "shortest")
STEP = 40
LIMITS: dict[str, Any] = {
    "block_size": 4,
    "cache_tokens": 4000,
    "max_num_batched_tokens": STEP,
    "max_num_seqs": 4,
}


LONG = 70
"""Tokens of prompts that no step but their own may compute."""
KINDS: dict[str, list[dict[str, Any]]] = {
    "decode": [{"max_tokens": 4}],
    "one pass": [{"max_tokens": 1}],
    "one long pass": [{"max_tokens": 1, "length": LONG}],
    "labels": [{"max_tokens": 1, "labels": ((1, 2), (1, 3, 4), (5,)), "scored": True}],
    "mixed": [{"max_tokens": 1}, {"max_tokens": 4}, {"max_tokens": 1, "length": LONG}],
}


def served(
    fairness: Fairness, policy: PolicyName, kind: str, small: Callable[[int], str]
) -> tuple[float, float]:
    """Tokens of service that relQueries of 2 rows and those of a tenant with 12 get, both waiting.

    small: the tenant of a relQuery of 2 rows.
    """
    engine = Harness(
        policy=make_policy(policy, PolicySettings(COST, fairness)), max_input=LONG, **LIMITS
    )
    everyone: list[RelQuery] = []
    for group in range(160):
        tenant, rows = ("large", 12) if group % 2 else (small(group), 2)
        options = dict(KINDS[kind][group // 2 % len(KINDS[kind])])
        length = options.pop("length", 20)
        everyone.append(engine.submit_rows(group, rows, length, tenant=tenant, **options))

    def service(is_large: bool) -> float:
        some = [each for each in everyone if (each.tenant == "large") is is_large]
        return sum(each.computed_prompts + OUTPUT * each.drawn_tokens for each in some)

    while service(False) + service(True) < 6_000:
        engine.engine.step()
    waiting = {each.tenant == "large" for each in engine.engine.relqueries.values()}
    assert waiting == {False, True}, "none ran dry"
    return service(False), service(True)


EVERY: list[tuple[PolicyName, float, str]] = [
    (policy, weight, kind) for policy in SHARING for weight in (1.0, 3.0) for kind in KINDS
]
SOME: list[tuple[PolicyName, float, str]] = [
    *(("static", 3.0, "one pass"), ("relserve", 1.0, "labels"), ("shortest", 3.0, "mixed"))
]


@pytest.mark.parametrize(
    ("policy", "weight", "kind"),
    [each if each in SOME else pytest.param(*each, marks=pytest.mark.long) for each in EVERY],
)
def test_tenants_that_wait_get_service_by_weight(
    policy: PolicyName, weight: float, kind: str
) -> None:
    fairness = Fairness(weights={"large": weight})
    small, large = served(fairness, policy, kind, lambda group: "small")
    # The slack, the step that exceeded it, and what was taken in before and goes on to its end.
    longest = max(STEP, *(options.get("length", 20) for options in KINDS[kind]))
    slack = SLACK * STEP + longest + LIMITS["max_num_seqs"] * (20 + OUTPUT * 4)
    assert abs(large / weight - small) <= slack
    assert small + large > 10 * slack


def test_one_tenant_changes_nothing() -> None:
    def end(tenant: str) -> list[float | None]:
        engine = Harness(policy=make_policy("shortest", PolicySettings(COST)), **LIMITS)
        relqueries = [
            engine.submit_rows(group, rows, 15, 3, tenant=tenant)
            for group, rows in enumerate((7, 2, 5, 1))
        ]
        engine.run()
        return [relquery.ended for relquery in relqueries]

    assert end("") == end("someone")


def test_who_was_away_gets_no_credit() -> None:
    tenants = Tenants({}, slack=100)
    busy, late = RelQuery(0, 0.0, "busy"), RelQuery(1, 0.0, "late")
    tenants.take_in(busy)
    busy.computed_prompts = 10_000
    tenants.take_in(busy)
    tenants.take_in(late)
    assert tenants.ahead({"busy", "late"}) == frozenset()
    late.drawn_tokens = 50
    tenants.take_in(late)
    assert tenants.ahead({"busy", "late"}) == frozenset(), "ahead by the slack, and no more"
    late.drawn_tokens = 60
    tenants.take_in(late)
    assert tenants.ahead({"busy", "late"}) == {"late"}
    assert tenants.ahead({"late"}) == frozenset(), "nobody waits whom it should let pass"
    tenants.forget(1)
    assert tenants.ahead({"busy"}) == frozenset()


def test_counters_of_those_who_are_gone_are_kept_while_they_are_ahead_and_no_longer() -> None:
    tenants = Tenants({}, slack=100)
    busy = RelQuery(0, 0.0, "busy")
    tenants.take_in(busy)
    for number in range(1, 6_000):
        passing = RelQuery(number, 0.0, f"tenant {number}")
        tenants.take_in(passing)
        passing.computed_prompts, busy.computed_prompts = 10, 9 * number
        for each in (passing, busy):
            tenants.take_in(each)
        tenants.forget(number)
        if number == 3_000:
            greedy = RelQuery(9_999, 0.0, "greedy")
            tenants.take_in(greedy)
            greedy.computed_prompts = 10**6
            tenants.take_in(greedy)
            tenants.forget(9_999)
    assert len(tenants._counters) < 200
    again = RelQuery(10_000, 0.0, "greedy")
    tenants.take_in(again)
    assert tenants.ahead({"busy", "greedy"}) == {"greedy"}, "a pause pays no debts"


@pytest.mark.parametrize("policy", ["shortest", pytest.param("relserve", marks=pytest.mark.long)])
def test_clients_who_name_themselves_anew_for_each_request_have_one_share(
    policy: PolicyName,
) -> None:
    fairness = Fairness(weights={"large": 1.0}, others_share=True)
    small, large = served(fairness, policy, "decode", lambda group: f"new {group}")
    slack = SLACK * STEP + STEP + LIMITS["max_num_seqs"] * (20 + OUTPUT * 4)
    assert abs(large - small) <= slack


@pytest.mark.parametrize(
    "policy", ["static", *(pytest.param(p, marks=pytest.mark.long) for p in SHARING[1:])]
)
def test_who_ages_is_passed_by_no_more_than_its_head_start(policy: PolicyName) -> None:
    def waiting_of_large(aging: float) -> float:
        settings = PolicySettings(COST, Fairness(aging=aging))
        engine = Harness(policy=make_policy(policy, settings), **{**LIMITS, "max_num_seqs": 1})
        large = engine.submit_rows(0, 6, 36, 20)
        for group in range(1, 80):
            engine.submit_rows(group, 1, 10, 4)
            engine.step()
        engine.run()
        return latency_of(large).waiting

    assert waiting_of_large(0.0) > 2 * waiting_of_large(1e3)


def test_a_relquery_that_comes_back_is_not_counted_twice() -> None:
    tenants = Tenants({}, slack=0.0)
    one, other = RelQuery(0, 0.0, "a"), RelQuery(1, 0.0, "b")
    for each in (one, other, RelQuery(2, 0.0, "a")):
        tenants.take_in(each)
    one.computed_prompts, other.computed_prompts = 10, 15
    for each in (one, other):
        tenants.take_in(each)
    tenants.forget(0)
    tenants.take_in(one)  # more rows of it have come
    assert tenants.ahead("ab") == {"b"}
