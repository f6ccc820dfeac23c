"""Policies that serve prompts one by one (paper 004): who is next, who joins, what is left."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines import FixedJobTime, FixedTransition, Scheduler, make_policy
from relquery.config import EngineConfig
from relquery.engine.block_pool import BlockPool
from relquery.engine.cost import LinearCost
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.plan import Memo, Plan, State
from relquery.engine.scheduling.policies.catalogue import PolicySettings
from relquery.engine.scheduling.policies.priority import Fairness
from relquery.engine.scheduling.policies.relserve import RelServe
from relquery.engine.scheduling.policies.srjf import (
    Backlog,
    Candidate,
    PrefixIndex,
    Srjf,
    advance_and_add,
    pays,
)
from relquery.engine.scheduling.reuse import Draft
from tests.engine.harness import Harness, numbered, spied

COST = LinearCost(1e-3, 0.01, 1e-3, 0.03)
ONE_BY_ONE = LinearCost(1e-3, 0.0, 1e-3, 0.03)
"""Nothing is saved by a step less."""


class Scan:
    """The policy, whose plans must be those of one that scores every request before each choice."""

    def __init__(self, policy: Srjf) -> None:
        self.policy = policy
        self.numbers: dict[Request, int] = {}
        self.joined = 0

    def __call__(self, state: State, memo: Memo) -> tuple[Plan, Memo]:
        for request in state.moved:
            if request not in state.waiting:
                self.numbers.pop(request, None)
        for request in state.moved:
            if request in state.waiting and request not in self.numbers:
                self.numbers[request] = self.joined = self.joined + 1
        draft, cost = Draft(state), self.policy.cost if self.policy.batch else None
        advance_and_add(draft, state, self.candidates(draft, state), cost)
        plan, memo = self.policy(state, memo)
        assert plan == draft.plan()
        return plan, memo

    def candidates(self, draft: Draft, state: State) -> Iterator[Candidate]:
        left, size = {*state.waiting}, state.limits.block_size

        def uncached(request: Request) -> int:
            return request.length - size * draft._reuse.hits(request).blocks

        def rank(request: Request) -> tuple[float, int]:
            output = 0 if request.prefill_only else request.max_tokens - len(request.output)
            own = request.length + output + self.policy.weight * request.arrival
            cached = request.length - uncached(request)
            return own - cached, self.numbers[request]

        while left:
            best = min(left, key=rank)
            left.remove(best)
            yield Candidate(best, uncached(best))


PROMPT = st.tuples(st.text("ab", max_size=14), st.text("xyz", min_size=1, max_size=6))


@given(data=st.data(), aging=st.sampled_from([0.0, 0.1, 2.0]), batch=st.booleans())
def test_its_choice_is_that_of_a_scan_whatever_happens_to_requests_and_cache(
    data: st.DataObject, aging: float, batch: bool
) -> None:
    policy = Srjf(COST, aging, batch=batch)
    engine = Harness(
        policy=Scan(policy),
        block_size=2,
        cache_tokens=data.draw(st.sampled_from([32, 48, 400])),
        max_num_batched_tokens=data.draw(st.sampled_from([7, 64])),
        max_input=data.draw(st.sampled_from([None, 40])),
    )
    for _ in range(data.draw(st.integers(1, 25))):
        step = data.draw(st.sampled_from(["submit", "submit", "step", "cancel", "evict", "fail"]))
        opened = [*engine.engine.waiting, *engine.engine.running]
        if step == "submit":
            head, tail = data.draw(PROMPT)
            limit = data.draw(st.sampled_from([1, 1, 1, 5]))
            engine.submit(map(ord, head + tail), limit, group=data.draw(st.integers(0, 3)))
        elif step == "evict":
            engine.engine.pool.evict(data.draw(st.integers(0, 5)))
        elif opened and step == "cancel":
            engine.engine.cancel(data.draw(st.sampled_from(opened)))
        elif opened and step == "fail":
            engine.fail()
        elif opened:
            engine.step()
    engine.executor.failure = None
    engine.run()
    assert_nothing_left(engine)


def assert_nothing_left(engine: Harness) -> None:
    backlog = engine.engine._memo
    assert isinstance(backlog, Backlog) or backlog is None
    if backlog is not None:
        backlog.update(engine.engine._state())
        assert len(backlog) == 0
        assert not backlog._index._runs
        assert not backlog._beside


def test_a_step_asks_for_few_blocks_however_many_requests_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = spied(monkeypatch, BlockPool, "lookup")

    def most(requests: int) -> int:
        """Blocks that a step asks for at most, but the one that takes all requests in."""
        engine = Harness(policy=make_policy("srjf", PolicySettings(COST)), cache_tokens=64)
        for number in range(requests):
            head = range(100 * (number % 5), 100 * (number % 5) + 12)
            engine.submit([*head, 1000 + number, number % 7], max_tokens=1)
        engine.engine.step()
        counts = []
        for _ in range(8):
            asked.clear()
            engine.engine.step()
            counts.append(len(asked))
        return max(counts)

    assert most(2_000) <= most(200) + 20


# ---- joining a step


def test_joining_pays_if_all_who_wait_gain_more_than_the_members_lose() -> None:
    candidate = Candidate(Request(0, numbered(30), 1), 20)  # 20 ms, a step takes 10 by itself
    assert not pays(candidate, 1, 0, COST)
    assert pays(candidate, 1, 2, COST)
    assert not pays(candidate, 2, 2, COST)
    assert not pays(candidate, 1, 10**9, ONE_BY_ONE)
    exact, longer = LinearCost(0.5, 8.0), Candidate(Request(0, numbered(32), 1), 32)
    assert not pays(longer, 1, 1, exact), "it saves what it costs"
    assert pays(longer, 1, 2, exact)
    context = LinearCost(1e-3, 0.01, context_slope=1.0)  # ten cached tokens take ten seconds
    assert not pays(candidate, 1, 2, context)


@given(
    sizes=st.lists(st.integers(1, 60), min_size=2, max_size=6), fixed=st.sampled_from([0.005, 0.05])
)
def test_joining_shortens_the_sum_of_waits_by_what_it_was_judged_by(
    sizes: list[int], fixed: float
) -> None:
    cost = LinearCost(1e-3, fixed)
    first, second, *others = sizes
    rest = [cost.seconds(size, 0) for size in others]
    apart = [cost.seconds(first, 0), cost.seconds(second, 0), *rest]
    joined = [cost.seconds(first + second, 0), *rest]
    ends = [sum(apart[: n + 1]) for n in range(len(apart))]
    sooner = [sum(joined[: n + 1]) for n in range(len(joined))]
    gained = sum(ends) - (sum(sooner) + sooner[0])
    candidate = Candidate(Request(0, numbered(second), 1), second)
    assert pays(candidate, 1, len(others), cost) == (gained > 1e-12) or abs(gained) < 1e-9


def test_names_and_settings_make_policies() -> None:
    config = EngineConfig(policy="srjf", aging=0.05)
    assert make_policy("srjf", PolicySettings.of(config, COST)) == Srjf(COST, 0.05)
    static = make_policy("srjf-static", PolicySettings(COST, Fairness(aging=0.1)))
    assert static == FixedJobTime(COST, 0.1, batch=False)
    assert make_policy("relserve", PolicySettings(COST)) == RelServe(COST)
    assert make_policy("relserve-dp", PolicySettings(COST)) == FixedTransition(COST, change=1.0)


def test_the_policy_of_the_paper_goes_by_uncached_tokens_one_prompt_a_step() -> None:
    def steps(name: Scheduler) -> list[list[tuple[int, int]]]:
        """Request and tokens of each chunk."""
        engine = Harness(policy=make_policy(name, PolicySettings(COST)))
        engine.ask(range(32), max_tokens=1)
        for tail in (200, 300):
            engine.submit([*range(32), tail, tail + 1], max_tokens=1)
        engine.submit([*range(32), *range(400, 405)], max_tokens=1)  # 5 tokens after 32
        engine.submit(range(100, 106), max_tokens=1)  # 6 tokens
        engine.run()
        steps = engine.executor.steps[1:]
        return [[(chunk.request, len(chunk.tokens)) for chunk in step] for step in steps]

    assert steps("srjf-calibrated") == [[(1, 2)], [(2, 2)], [(3, 5)], [(4, 6)]]
    # The other fills a step where that pays.
    assert steps("srjf") == [[(1, 2), (2, 2), (3, 5)], [(4, 6)]]


# ---- the index of what waits


class Scanned:
    """What the index says, found by looking at every request; and the index, which must agree."""

    def __init__(self) -> None:
        self.cache: set[bytes] = set()
        self.added = 0
        self.waiting: dict[Request, tuple[tuple[bytes, ...], float]] = {}
        self.index = PrefixIndex(lambda key: key in self.cache, 3)

    def add(self, path: str, rank: float = 0.0) -> Request:
        """path: letters that stand for blocks; a block's key names all before it too."""
        keys = tuple(path[: end + 1].encode() for end in range(len(path)))
        self.added += 1
        request = Request(self.added, numbered(1), 1)
        self.waiting[request] = keys, rank
        self.index.add(request, keys, (rank, request.id))
        self.check()
        return request

    def remove(self, request: Request) -> None:
        del self.waiting[request]
        self.index.remove(request)
        self.check()

    def change(self, *paths: str) -> None:
        """Blocks that were cached are no longer, and those that were not are; all at once."""
        keys = [path.encode() for path in paths]
        self.cache ^= set(keys)
        for key in keys:
            self.index.refresh(key)
        self.check()

    def cached(self, request: Request) -> int:
        keys, _ = self.waiting[request]
        return sum(1 for _ in takewhile(self.cache.__contains__, keys))

    def rank(self, request: Request) -> float:
        return self.waiting[request][1] - 3 * self.cached(request)

    def check(self) -> None:
        best = self.index.best()
        assert len(self.index) == len(self.waiting)
        if best is None:
            assert not self.waiting
            return
        request, blocks = best
        # Of equal ones the first; a dict keeps them in the order in which they came.
        assert request is min(self.waiting, key=self.rank)
        assert blocks == self.cached(request)


PATH = st.text("abc", max_size=7)


@given(data=st.data())
def test_it_agrees_with_a_scan_of_all_requests(data: st.DataObject) -> None:
    scanned = Scanned()
    for _ in range(data.draw(st.integers(1, 30))):
        step = data.draw(st.sampled_from(["add", "add", "remove", "evict", "publish", "change"]))
        waiting = list(scanned.waiting)
        if step == "add":
            scanned.add(data.draw(PATH), data.draw(st.integers(0, 20)))
        elif step == "remove" and waiting:
            scanned.remove(data.draw(st.sampled_from(waiting)))
        elif step == "publish":  # as the engine does: all that a prompt lacks
            path = data.draw(PATH)
            prefixes = [path[: end + 1] for end in range(len(path))]
            scanned.change(*(each for each in prefixes if each.encode() not in scanned.cache))
        elif step == "evict" and scanned.cache:
            keys = st.sampled_from(sorted(scanned.cache))
            gone = data.draw(st.lists(keys, unique=True, max_size=6))
            scanned.change(*(key.decode() for key in gone))
        elif step == "change":
            scanned.change(*data.draw(st.lists(PATH.filter(bool), unique=True, max_size=4)))
    for request in list(scanned.waiting):
        scanned.remove(request)
    assert_empty(scanned.index)


def assert_empty(index: PrefixIndex) -> None:
    """Nothing of what has left is kept."""
    assert len(index) == 0
    assert not index._runs
    assert index.best() is None
    assert not index._order


def test_a_gap_ends_what_counts_until_it_is_filled() -> None:
    scanned = Scanned()
    scanned.index.remove(Request(0, numbered(1), 1))  # who is not there may be removed
    long = scanned.add("abcdef", 10.0)
    scanned.add("x", 9.0)
    scanned.change("a", "ab", "abcd", "abcde")
    assert scanned.index.best() == (long, 2)
    scanned.change("abc")
    assert scanned.index.best() == (long, 5)
    scanned.change("ab")
    assert scanned.index.best() == (long, 1)


def test_a_gap_above_what_several_begin_with_ends_what_counts_below_it() -> None:
    scanned = Scanned()
    best, _, _ = (scanned.add(path, 10.0) for path in ("abcd", "abcx", "aby"))
    scanned.change("a", "ab", "abc", "abcd")
    steps = (["a"], 0), (["a"], 4), (["ab"], 1), (["ab"], 4), (["ab", "abc"], 1), (["abc"], 1)
    for paths, cached in (*steps, (["ab"], 4)):
        scanned.change(*paths)
        assert scanned.index.best() == (best, cached)


@pytest.mark.long
def test_a_thousand_prompts_that_each_continue_the_one_before_are_no_trouble() -> None:
    scanned, keys = Scanned(), tuple(n.to_bytes(4) for n in range(1_100))
    requests = [Request(n, numbered(1), 1) for n in range(1_100)]
    for n, request in enumerate(requests):
        scanned.index.add(request, keys[: n + 1], (4.0 * n, n))
    for cached in ({*keys}, set[bytes]()):
        scanned.cache ^= scanned.cache ^ cached
        for key in reversed(keys):
            scanned.index.refresh(key)
        assert scanned.index.best() == (requests[0], len(cached) and 1)
    for request in requests:
        scanned.index.remove(request)
    assert_empty(scanned.index)


def test_few_old_entries_are_kept() -> None:
    scanned = Scanned()
    scanned.add("a")
    for _ in range(100):
        scanned.change("a")
    assert len(scanned.index._order) < 20
