"""Draft: what planned work leaves of tokens, seats and blocks."""

from __future__ import annotations

from typing import Any

from relquery.arrays import TokenIds
from relquery.config import EngineConfig
from relquery.engine.cache.blocks import BlockPool
from relquery.engine.request.request import Request
from relquery.engine.scheduling.draft import Draft
from relquery.engine.scheduling.plan import State
from relquery.engine.scheduling.policies.steps import make_room
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


def cached(pool: BlockPool, prompt: TokenIds) -> None:
    """Leave the full blocks of a prompt in the cache, held by none."""
    pool.release(running(pool, prompt).blocks)


def test_a_prompt_is_admitted_whole_where_it_fits() -> None:
    one = draft(BlockPool(5))
    request = waiting(numbered(10))
    assert one.admit(request)
    assert [(w.request, w.tokens, w.hits) for w in one.plan().work] == [(request, 10, (0,))]
    assert (one.tokens, one.blocks) == (90, 2)


def test_a_prompt_longer_than_the_token_budget_begins_with_a_chunk() -> None:
    one = draft(BlockPool(5), max_num_batched_tokens=7)
    assert one.admit(waiting(numbered(10)))
    assert one.plan().work[0].tokens == 7
    assert not one.admit(waiting(numbered(2))), "no tokens are left"


def test_an_admitted_prompt_gets_all_its_blocks_although_only_a_chunk_is_computed() -> None:
    one = draft(BlockPool(5), max_num_batched_tokens=4)
    assert one.admit(waiting(numbered(17)))
    assert one.blocks == 0


def test_none_is_admitted_beyond_the_blocks() -> None:
    one = draft(BlockPool(2))
    assert not one.admit(waiting(numbered(9)))
    assert one.plan().work == ()
    assert one.admit(waiting(numbered(8)))


def test_none_is_admitted_beyond_the_seats() -> None:
    pool = BlockPool(9)
    one = draft(pool, (running(pool, numbered(4)),), max_num_seqs=2)
    assert one.admit(waiting(numbered(4)))
    assert not one.admit(waiting(numbered(4)))


def test_cached_blocks_are_not_computed_but_use_up_available_ones() -> None:
    pool = BlockPool(4)
    cached(pool, numbered(8))
    one = draft(pool)
    assert one.admit(waiting(numbered(10)))
    work = one.plan().work[0]
    assert (work.tokens, work.hits, one.blocks) == (2, (2,), 1)


def test_held_blocks_that_are_shared_cost_nothing() -> None:
    pool = BlockPool(4)
    running(pool, numbered(8))
    one = draft(pool)
    assert one.admit(waiting(numbered(10)))
    assert (one.plan().work[0].hits, one.blocks) == ((2,), 1)


def test_cached_blocks_that_two_admitted_requests_share_are_counted_once() -> None:
    pool = BlockPool(4)
    cached(pool, numbered(8))
    one = draft(pool)
    assert one.admit(waiting(numbered(10)))
    assert one.admit(waiting(numbered(9)))
    assert one.blocks == 0


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    pool = BlockPool(8)
    cached(pool, numbered(8))
    one = draft(pool)
    assert one.admit(waiting(numbered(8)))
    work = one.plan().work[0]
    assert (work.tokens, work.hits) == (4, (1,))


def test_a_hit_ends_at_the_first_block_that_is_not_there() -> None:
    pool = BlockPool(8)
    holder = running(pool, numbered(12))
    pool.withdraw(holder.blocks[1])
    one = draft(pool)
    assert one.admit(waiting(numbered(13)))
    assert one.plan().work[0].hits == (1,)


def test_without_prefix_caching_nothing_is_a_hit() -> None:
    pool = BlockPool(8)
    cached(pool, numbered(8))
    one = draft(pool, prefix_caching=False)
    assert one.admit(waiting(numbered(10)))
    assert one.admit(waiting(numbered(10)))
    assert [(w.tokens, w.hits) for w in one.plan().work] == [(10, (0,)), (10, (0,))]


def test_requests_of_one_step_share_what_the_first_of_them_computes() -> None:
    one = draft(BlockPool(8))
    assert one.admit(waiting(numbered(10)))
    assert one.admit(waiting(numbered(11)))
    assert [(w.tokens, w.hits) for w in one.plan().work] == [(10, (0,)), (3, (2,))]
    assert one.blocks == 8 - 3 - 1


def test_what_a_step_only_begins_is_no_hit_in_it() -> None:
    one = draft(BlockPool(9), max_num_batched_tokens=6)
    running_first = waiting(numbered(12))
    assert one.admit(running_first)
    assert one.tokens == 0
    pool = BlockPool(9)
    begun = running(pool, numbered(12), computed=4)
    two = draft(pool, (begun,), max_num_batched_tokens=20)
    two.tokens = 6
    assert two.advance(begun)
    two.tokens = 10
    assert two.admit(waiting(numbered(14)))
    assert two.plan().work[1].hits == (2,), "block 0 from the cache, block 1 from the same step"


def test_a_block_that_a_single_token_completes_is_a_hit_in_the_same_step() -> None:
    pool = BlockPool(9)
    begun = running(pool, numbered(8), computed=7)
    one = draft(pool, (begun,))
    assert one.advance(begun)
    assert one.admit(waiting(numbered(12)))
    assert one.plan().work[1].hits == (2,)


def test_a_decode_takes_a_block_only_where_the_last_one_is_full() -> None:
    pool = BlockPool(4)
    one, two = running(pool, numbered(7)), running(pool, numbered(4))
    one.output, two.output = [1], [1]
    planned = draft(pool, (one, two))
    assert planned.advance(one)
    assert planned.blocks == 1
    assert planned.advance(two)
    assert planned.blocks == 0


def test_a_decode_without_a_block_is_not_planned() -> None:
    pool = BlockPool(1)
    one = running(pool, numbered(4))
    one.output = [1]
    planned = draft(pool, (one,))
    assert not planned.advance(one)
    assert planned.plan().work == ()


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
