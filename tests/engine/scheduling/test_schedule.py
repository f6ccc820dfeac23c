"""Draft: what planned work leaves of tokens, seats and blocks."""

from __future__ import annotations

from typing import Any

import pytest

from relquery.arrays import TokenIds
from relquery.config import EngineConfig
from relquery.engine.block_pool import BlockPool
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.plan import State
from relquery.engine.scheduling.policies.steps import make_room, sarathi
from relquery.engine.scheduling.reuse import Draft
from tests.cases import cases
from tests.engine.harness import numbered

SIZE = 4


def draft(pool: BlockPool, running: tuple[Request, ...] = (), **limits: Any) -> Draft:
    config = EngineConfig(**{"block_size": SIZE, "max_num_batched_tokens": 100, **limits})
    return Draft(State(0.0, (), running, config, pool))


def waiting(prompt: TokenIds) -> Request:
    return Request(0, prompt, 8)


def running(pool: BlockPool, prompt: TokenIds, computed: int | None = None) -> Request:
    """A request that holds fresh blocks for its prompt, the full computed ones published."""
    request = waiting(prompt)
    request.pieces[0].done = len(prompt) if computed is None else computed
    blocks = pool.allocate(-(-len(prompt) // SIZE))
    assert blocks is not None
    request.pieces[0].blocks = blocks
    for index in range(request.computed // SIZE):
        pool.publish(request.key(0, index, SIZE), blocks[index])
    return request


@pytest.mark.parametrize("case", cases(__file__, "admitted"))
def test_who_is_admitted(case: list[Any]) -> None:
    blocks, limits, known, prompts, expected, left = case
    pool = BlockPool(blocks)
    if known:  # held by none
        pool.release(running(pool, numbered(known)).blocks)
    one = draft(pool, **limits)
    assert [one.admit(waiting(numbered(each))) for each in prompts] == [
        each is not None for each in expected
    ]
    admitted = [each for each in expected if each is not None]
    assert [[w.tokens, *w.hits] for w in one.plan().work] == admitted
    assert one.blocks == left
    assert one.tokens == limits.get("max_num_batched_tokens", 100) - sum(n for n, _ in admitted)


def test_held_blocks_that_are_shared_cost_nothing_and_their_holder_has_a_seat() -> None:
    pool = BlockPool(9)
    one = draft(pool, (running(pool, numbered(8)),), max_num_seqs=2)
    assert one.admit(waiting(numbered(10)))
    assert (one.plan().work[0].hits, one.blocks) == ((2,), 6)
    assert not one.admit(waiting(numbered(4)))


def test_a_hit_ends_at_the_first_block_that_is_not_there() -> None:
    pool = BlockPool(8)
    holder = running(pool, numbered(12))
    pool.withdraw(holder.blocks[1])
    one = draft(pool)
    assert one.admit(waiting(numbered(13)))
    assert one.plan().work[0].hits == (1,)


def test_what_a_step_only_begins_is_no_hit_in_it() -> None:
    pool = BlockPool(9)
    begun = running(pool, numbered(12), computed=4)
    two = draft(pool, (begun,), max_num_batched_tokens=20)
    two.tokens = 6
    assert two.advance(begun)
    two.tokens = 10
    assert two.admit(waiting(numbered(14)))
    assert two.plan().work[1].hits == (2,), "block 0 from the cache, block 1 from the same step"


def test_eviction_frees_the_blocks_that_no_other_request_holds() -> None:
    pool = BlockPool(6)
    one, two = running(pool, numbered(8)), running(pool, numbered(8, start=50))
    pool.take(one.blocks[0])
    two.pieces[0].blocks = [one.blocks[0], *two.blocks]
    planned = draft(pool, (one, two))
    before = planned.blocks
    planned.evict(two)
    assert planned.blocks == before + 2
    assert planned.plan().preempt == (two,)


def test_blocks_shared_by_evicted_requests_alone_are_freed_with_the_last() -> None:
    pool = BlockPool(6)
    one, two = running(pool, numbered(8)), running(pool, numbered(4, start=50))
    pool.take(one.blocks[0])
    two.pieces[0].blocks = [one.blocks[0], *two.blocks]
    planned = draft(pool, (one, two))
    planned.evict(two)
    planned.evict(one)
    assert planned.blocks == pool.total


def test_blocks_that_an_admitted_request_relies_on_are_not_freed_with_their_holder() -> None:
    pool = BlockPool(6)
    holder = running(pool, numbered(16))
    planned = draft(pool, (holder,))
    assert planned.admit(waiting(numbered(13)))  # three blocks of the holder, and one of its own
    planned.evict(holder)
    assert planned.blocks == 2
    assert not planned.admit(waiting(numbered(12, start=50)))
    assert planned.admit(waiting(numbered(8, start=50)))


def test_a_fork_leaves_the_draft_as_it_is() -> None:
    pool = BlockPool(6)
    one = running(pool, numbered(12))
    planned = draft(pool, (one,), max_num_seqs=2)
    assert planned.admit(waiting(numbered(5, start=70)))
    other, before = planned.fork(), planned.plan()
    other.evict(one)
    assert other.admit(waiting(numbered(7, start=70)))
    assert (planned.plan(), planned.blocks, planned.seats) == (before, 1, 0)
    assert [len(plan.work) for plan in (planned.plan(), other.plan())] == [1, 2]


def test_a_long_prompt_and_what_decodes_beside_it_stay_within_what_a_step_may_compute() -> None:
    pool = BlockPool(20)
    decoding = running(pool, numbered(5))
    decoding.output = [1]
    planned = draft(pool, (decoding,), max_num_batched_tokens=10, max_input=30)
    assert planned.advance(decoding)
    fits, not_quite = (Request(0, numbered(count, start=50), 1) for count in (29, 30))
    assert planned.fork().admit(fits, whole=True)
    assert not planned.admit(not_quite, whole=True)


def test_none_loses_its_place_to_one_that_would_not_fit_even_so() -> None:
    pool = BlockPool(8)
    first, second = running(pool, numbered(12)), running(pool, numbered(12, start=50))
    full = draft(pool, (first, second), max_num_seqs=2)
    assert make_room(full, waiting(numbered(33, start=90)), [second, first]) is None
    assert full.preempt == []
    found = make_room(full, waiting(numbered(16, start=90)), [second, first])
    assert found is not None
    assert found.preempt == [second]


def test_a_plan_changes_nothing() -> None:
    pool = BlockPool(3)
    decoding = tuple(running(pool, numbered(4, start=100 * number)) for number in range(3))
    for one in decoding:
        one.output = [7]
    before = [(one.computed, list(one.blocks), list(one.output)) for one in decoding]
    config = EngineConfig(block_size=SIZE, max_num_batched_tokens=20)
    state = State(0.0, (waiting(numbered(1)),), decoding, config, pool)
    first, again = (sarathi(state, None) for _ in range(2))
    assert first == again
    assert [(one.computed, one.blocks, one.output) for one in decoding] == before
    assert pool.available == 0
    pool.check()
