"""The block pool: references, lookup by key, and eviction of the least recently used."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.cache.blocks import BlockPool
from relquery.engine.cache.cidra import Batch, Move, plan_batches
from relquery.engine.request.pieces import Keep

ABC = (b"a", b"b", b"c")


def allocated(pool: BlockPool, count: int) -> list[int]:
    blocks = pool.allocate(count)
    assert blocks is not None
    return blocks


def published(pool: BlockPool, *keys: bytes) -> list[int]:
    """Blocks that are held and can be found by `keys`."""
    blocks = allocated(pool, len(keys))
    for key, block in zip(keys, blocks, strict=True):
        pool.publish(key, block)
    return blocks


def kept(pool: BlockPool, key: bytes, keep: Keep) -> list[int]:
    """A block that is kept, and held by none."""
    blocks = published(pool, key)
    pool.keep(blocks, keep)
    pool.release(blocks)
    return blocks


def found(pool: BlockPool) -> str:
    """Which of a, b and c can be found."""
    pool.check()
    return "".join(key.decode() for key in ABC if pool.lookup(key) is not None)


def test_allocated_blocks_are_distinct_and_held_and_one_that_does_not_fit_takes_nothing() -> None:
    pool = BlockPool(4)
    assert len(set(allocated(pool, 3))) == 3
    assert (pool.held, pool.available) == (3, 1)
    assert pool.allocate(2) is None
    assert (pool.held, pool.available) == (3, 1)
    pool.check()


def test_a_released_block_with_a_key_can_be_found_and_taken_again() -> None:
    pool = BlockPool(2)
    (block,) = published(pool, b"a")
    pool.release([block])
    assert pool.held == 0
    assert pool.lookup(b"a") == block
    assert pool.references(block) == 0
    pool.take(block)
    assert (pool.held, pool.references(block)) == (1, 1)
    pool.check()


def test_a_released_block_without_a_key_is_free() -> None:
    pool = BlockPool(1)
    blocks = allocated(pool, 1)
    pool.release(blocks)
    assert pool.evict(1) == 0
    assert pool.allocate(1) == blocks


def test_a_block_stays_held_until_all_its_holders_let_go() -> None:
    pool = BlockPool(1)
    blocks = published(pool, b"a")
    pool.take(blocks[0])
    pool.release(blocks)
    assert pool.allocate(1) is None
    pool.release(blocks)
    assert pool.allocate(1) == blocks
    assert found(pool) == "", "it is in use for something else"


def test_evict_drops_cached_blocks_only_and_says_how_many() -> None:
    pool = BlockPool(4)
    pool.release(published(pool, b"a", b"b"))
    published(pool, b"c")
    assert pool.evict(9) == 2
    assert pool.available == 3
    assert found(pool) == "c"


def test_free_blocks_are_used_before_cached_ones() -> None:
    pool = BlockPool(2)
    pool.release(published(pool, b"a"))
    pool.allocate(1)
    assert found(pool) == "a"


def test_the_block_released_longest_ago_is_evicted_first() -> None:
    pool = BlockPool(3)
    first, second, third = (published(pool, key) for key in ABC)
    for blocks in (second, first, third):
        pool.release(blocks)
    pool.take(second[0])  # in use again: now the most recent
    pool.release(second)
    for left in ("bc", "b", ""):
        pool.evict(1)
        assert found(pool) == left


def test_of_one_request_the_last_block_is_evicted_first() -> None:
    pool = BlockPool(3)
    pool.release(published(pool, *ABC))
    pool.evict(1)
    assert found(pool) == "ab"


def test_the_first_block_of_a_key_stays_the_one_that_is_found_and_a_block_keeps_its_key() -> None:
    pool = BlockPool(2)
    first, second = published(pool, b"a"), published(pool, b"a")
    pool.publish(b"b", first[0])
    assert found(pool) == "a"
    assert pool.lookup(b"a") == first[0]
    pool.release(second)
    pool.check()
    assert pool.available == 1


def test_a_withdrawn_block_is_not_found_and_becomes_free() -> None:
    pool = BlockPool(1)
    blocks = published(pool, b"a")
    pool.withdraw(blocks[0])
    pool.withdraw(blocks[0])
    assert found(pool) == ""
    pool.release(blocks)
    pool.check()
    assert pool.evict(1) == 0


def test_check_notices_a_block_that_is_released_twice_and_a_key_without_its_block() -> None:
    twice, lost = BlockPool(2), BlockPool(2)
    blocks = allocated(twice, 1)
    twice.release(blocks)
    twice.release(blocks)
    published(lost, b"a")
    lost._block_of[b"b"] = 1
    for pool in (twice, lost):
        with pytest.raises(AssertionError):
            pool.check()


def test_it_says_which_keys_came_and_went() -> None:
    pool = BlockPool(2)
    blocks = published(pool, b"a", b"b")
    pool.publish(b"a", blocks[1])  # it has one already
    assert pool.changes == [b"a", b"b"]
    pool.changes = []
    pool.withdraw(blocks[0])
    pool.withdraw(blocks[0])
    pool.release(blocks)
    pool.allocate(2)
    assert pool.changes == [b"a", b"b"]


# ---- what is kept


def test_kept_blocks_are_evicted_last_those_of_the_lowest_level_first() -> None:
    pool = BlockPool(4, most_kept=3)
    kept(pool, b"a", Keep(2))
    kept(pool, b"b", Keep(1))
    pool.release(published(pool, b"c"))
    assert (pool.available, pool.kept) == (4, 2)
    for left in ("ab", "a", ""):
        assert pool.evict(1) == 1
        assert found(pool) == left


def test_a_block_is_kept_after_others_have_used_it() -> None:
    pool = BlockPool(2)
    blocks = kept(pool, b"a", Keep(1))
    pool.take(blocks[0])
    pool.release(blocks)
    pool.release(published(pool, b"b"))
    assert pool.evict(1) == 1
    assert found(pool) == "a"


def test_when_too_many_are_kept_the_oldest_become_ordinary() -> None:
    pool = BlockPool(4, most_kept=1)
    kept(pool, b"a", Keep(1))
    kept(pool, b"b", Keep(1))
    assert (found(pool), pool.kept) == ("ab", 1)
    pool.evict(1)
    assert (found(pool), pool.kept) == ("b", 1)


def test_a_block_whose_content_was_never_computed_is_not_kept() -> None:
    pool = BlockPool(1)
    blocks = published(pool, b"a")
    pool.keep(blocks, Keep(1))
    pool.withdraw(blocks[0])
    pool.release(blocks)
    pool.check()
    assert (pool.kept, pool.available) == (0, 1)


def test_a_block_is_kept_for_its_time_after_its_last_use() -> None:
    now = 0.0
    pool = BlockPool(3, most_kept=2, now=lambda: now)
    blocks = kept(pool, b"a", Keep(1, 300))
    now = 299
    pool.take_all(blocks)
    pool.release(blocks)
    now = 598
    pool.release(published(pool, b"b"))
    assert pool.evict(1) == 1
    assert found(pool) == "a"
    now = 599
    pool.release(published(pool, b"c"))
    assert pool.evict(1) == 1
    assert found(pool) == "c", "the other was used before it"
    assert (pool.kept, pool.cached) == (0, 1)


def test_what_has_expired_makes_room_for_what_is_kept() -> None:
    now = 0.0
    pool = BlockPool(4, most_kept=1, now=lambda: now)
    kept(pool, b"a", Keep(2, 3600))
    now = 3600
    kept(pool, b"b", Keep(1, 300))
    assert (found(pool), pool.kept) == ("ab", 1)
    pool.evict(1)
    assert (found(pool), pool.kept) == ("b", 1)


# ---- moves in place

Content = tuple[int, int]  # which block it was, and by how much it was turned


def carry_out(batches: list[Batch], blocks: dict[int, Content]) -> None:
    for batch in batches:
        read = [turned(blocks[move.source], move.turn) for move in batch.moves]
        blocks.update({m.target: content for m, content in zip(batch.moves, read, strict=True)})


def turned(content: Content, turn: int) -> Content:
    return content[0], content[1] + turn


moves = st.dictionaries(  # target: source, turn
    st.integers(0, 12), st.tuples(st.integers(0, 12), st.integers(-5, 5))
).map(lambda chosen: [Move(source, target, turn) for target, (source, turn) in chosen.items()])


@given(moves, st.integers(1, 6))
def test_batches_in_place_end_where_moves_all_at_once_would(moves: list[Move], limit: int) -> None:
    batches = plan_batches(moves, limit)
    blocks = {block: (block, 0) for block in range(13)}
    expected = blocks | {m.target: turned(blocks[m.source], m.turn) for m in moves}
    carry_out(batches, blocks)
    assert blocks == expected
    assert sorted(m.target for b in batches for m in b.moves) == sorted(m.target for m in moves)


def test_a_block_that_two_need_elsewhere_is_copied_before_it_is_turned() -> None:
    batches = plan_batches([Move(3, 3, 8), Move(3, 7, 2)])
    assert batches == [Batch((Move(3, 7, 2),)), Batch((Move(3, 3, 8),))]


def test_a_swap_is_one_batch() -> None:
    (batch,) = plan_batches([Move(1, 2, 4), Move(2, 1, -4)])
    assert set(batch.moves) == {Move(1, 2, 4), Move(2, 1, -4)}


def test_a_cycle_beyond_the_limit_is_a_batch_by_itself() -> None:
    cycle = [Move(i, (i + 1) % 5, 1) for i in range(5)]
    batches = plan_batches([*cycle, Move(7, 7, 1)], limit=3)
    assert sorted(len(batch.moves) for batch in batches) == [1, 5]


def test_two_moves_to_one_block_are_refused() -> None:
    with pytest.raises(ValueError, match="block 2 is the target of two"):
        plan_batches([Move(0, 2, 0), Move(1, 2, 0)])
