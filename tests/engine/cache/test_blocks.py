"""The block pool: references, lookup by key, and eviction of the least recently used."""

from __future__ import annotations

import pytest

from relquery.engine.cache.blocks import BlockPool
from relquery.engine.request.pieces import Keep


def published(pool: BlockPool, *keys: bytes) -> list[int]:
    """Blocks that are held and can be found by `keys`."""
    blocks = pool.allocate(len(keys))
    assert blocks is not None
    for key, block in zip(keys, blocks, strict=True):
        pool.publish(key, block)
    return blocks


def test_allocated_blocks_are_distinct_and_held() -> None:
    pool = BlockPool(4)
    blocks = pool.allocate(3)
    assert blocks is not None
    assert len(set(blocks)) == 3
    assert (pool.held, pool.available) == (3, 1)
    pool.check()


def test_an_allocation_that_does_not_fit_takes_nothing() -> None:
    pool = BlockPool(2)
    assert pool.allocate(3) is None
    assert pool.available == 2


def test_a_released_block_with_a_key_can_be_found_and_taken_again() -> None:
    pool = BlockPool(2)
    blocks = published(pool, b"a")
    pool.release(blocks)
    assert pool.held == 0
    assert pool.lookup(b"a") == blocks[0]
    assert pool.references(blocks[0]) == 0
    pool.take(blocks[0])
    assert (pool.held, pool.references(blocks[0])) == (1, 1)
    pool.check()


def test_a_released_block_without_a_key_is_free() -> None:
    pool = BlockPool(1)
    blocks = pool.allocate(1)
    assert blocks is not None
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


def test_a_held_block_is_never_evicted() -> None:
    pool = BlockPool(2)
    published(pool, b"a", b"b")
    assert pool.evict(2) == 0
    assert pool.lookup(b"a") is not None


def test_free_blocks_are_used_before_cached_ones() -> None:
    pool = BlockPool(2)
    pool.release(published(pool, b"a"))
    pool.allocate(1)
    assert pool.lookup(b"a") is not None


def test_the_block_released_longest_ago_is_evicted_first() -> None:
    pool = BlockPool(3)
    first, second, third = (published(pool, key) for key in (b"a", b"b", b"c"))
    for blocks in (second, first, third):
        pool.release(blocks)
    found = pool.lookup(b"b")  # in use again: now the most recent
    assert found is not None
    pool.take(found)
    pool.release([found])
    evicted = []
    for _ in range(3):
        pool.evict(1)
        evicted.append([key for key in (b"a", b"b", b"c") if pool.lookup(key) is None])
    assert evicted == [[b"a"], [b"a", b"c"], [b"a", b"b", b"c"]]


def test_of_one_request_the_last_block_is_evicted_first() -> None:
    pool = BlockPool(3)
    pool.release(published(pool, b"a", b"b", b"c"))
    pool.evict(1)
    assert [pool.lookup(key) is None for key in (b"a", b"b", b"c")] == [False, False, True]


def test_an_evicted_block_is_not_found() -> None:
    pool = BlockPool(1)
    pool.release(published(pool, b"a"))
    assert pool.allocate(1) is not None
    assert pool.lookup(b"a") is None
    pool.check()


def test_the_first_block_of_a_key_stays_the_one_that_is_found() -> None:
    pool = BlockPool(2)
    first = published(pool, b"a")
    second = published(pool, b"a")
    assert pool.lookup(b"a") == first[0]
    pool.release(second)
    pool.check()
    assert pool.available == 1


def test_a_block_keeps_its_first_key() -> None:
    pool = BlockPool(1)
    blocks = published(pool, b"a")
    pool.publish(b"b", blocks[0])
    assert pool.lookup(b"b") is None
    pool.check()


def test_a_withdrawn_block_is_not_found_and_becomes_free() -> None:
    pool = BlockPool(1)
    blocks = published(pool, b"a")
    pool.withdraw(blocks[0])
    pool.withdraw(blocks[0])
    assert pool.lookup(b"a") is None
    pool.release(blocks)
    pool.check()
    assert pool.evict(1) == 0


def test_evict_drops_cached_blocks_only_and_says_how_many() -> None:
    pool = BlockPool(4)
    pool.release(published(pool, b"a", b"b"))
    published(pool, b"c")
    assert pool.evict(9) == 2
    assert pool.available == 3
    pool.check()


def test_check_notices_a_block_that_is_released_twice() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(1)
    assert blocks is not None
    pool.release(blocks)
    pool.release(blocks)
    with pytest.raises(AssertionError):
        pool.check()


def test_check_notices_a_key_without_its_block() -> None:
    pool = BlockPool(2)
    published(pool, b"a")
    pool._block_of[b"b"] = 1
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


def test_kept_blocks_are_evicted_last_those_of_the_lowest_level_first() -> None:
    pool = BlockPool(4, most_kept=3)
    high, low, plain = (published(pool, key) for key in (b"high", b"low", b"plain"))
    pool.keep(high, Keep(2))
    pool.keep(low, Keep(1))
    for blocks in (high, low, plain):
        pool.release(blocks)
    pool.check()
    assert (pool.available, pool.kept) == (4, 2)
    for key in (b"plain", b"low", b"high"):
        assert pool.lookup(key) is not None
        assert pool.evict(1) == 1
        assert pool.lookup(key) is None
        pool.check()


def test_a_block_is_kept_after_others_have_used_it() -> None:
    pool = BlockPool(2)
    blocks = published(pool, b"a")
    pool.keep(blocks, Keep(1))
    pool.release(blocks)
    pool.take(blocks[0])
    pool.release(blocks)
    pool.release(published(pool, b"b"))
    assert pool.evict(1) == 1
    assert pool.lookup(b"a") is not None


def test_when_too_many_are_kept_the_oldest_become_ordinary() -> None:
    pool = BlockPool(4, most_kept=1)
    for key in (b"a", b"b"):
        blocks = published(pool, key)
        pool.keep(blocks, Keep(1))
        pool.release(blocks)
    pool.check()
    assert pool.kept == 1
    pool.evict(1)
    assert (pool.lookup(b"a"), pool.kept) == (None, 1)


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
    kept = published(pool, b"kept")
    pool.keep(kept, Keep(1, 300))
    pool.release(kept)
    now = 299
    pool.take_all(kept)
    pool.release(kept)
    now = 598
    pool.release(published(pool, b"new"))
    assert pool.evict(1) == 1
    assert (pool.lookup(b"new"), pool.lookup(b"kept")) == (None, *kept)
    now = 599
    pool.release(published(pool, b"newer"))
    assert pool.evict(1) == 1
    assert pool.lookup(b"kept") is None, "it was used before the other one"
    assert (pool.kept, pool.cached) == (0, 1)
    pool.check()


def test_what_has_expired_makes_room_for_what_is_kept() -> None:
    now = 0.0
    pool = BlockPool(4, most_kept=1, now=lambda: now)
    for key, level in ((b"hour", Keep(2, 3600)), (b"minutes", Keep(1, 300))):
        blocks = published(pool, key)
        pool.keep(blocks, level)
        pool.release(blocks)
        now = 3600
    pool.check()
    assert pool.kept == 1
    pool.evict(1)
    assert (pool.lookup(b"hour"), pool.kept) == (None, 1)
