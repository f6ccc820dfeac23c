"""The block pool: references, lookup by key, and eviction of the least recently used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.block_pool import Batch, BlockPool, Move, plan_batches
from relquery.engine.requests.pieces import Keep
from tests.engine.scenarios import paragraphs


class Pool:
    """What lines of a text say is done with a pool."""

    def __init__(self, lines: list[str]) -> None:
        blocks, *kept = map(int, lines.pop(0).split()[1:])
        self.now = 0.0
        options: Any = {"most_kept": kept[0]} if kept else {}
        self.pool = BlockPool(blocks, now=lambda: self.now, **options)
        self.named: dict[str, int] = {}
        for line in lines:
            what, *given = line.split()
            if what == "=":
                for said in line[2:].split(", "):
                    self.check(*said.split())
            else:
                getattr(self, what)(*given)
            self.pool.check()

    def check(self, what: str, *expected: str) -> None:
        match what:
            case "found":
                found = {key: self.pool.lookup(key.encode()) for key in "abc"}
                known = [key for key, block in found.items() if block is not None]
                assert "".join(known) == expected[0].strip("-")
                assert all(found[key] == self.named[key] for key in known)
            case "references":
                assert self.pool.references(self.named[expected[0]]) == int(expected[1])
            case "changes":
                assert self.pool.changes == [key.encode() for key in expected[0]]
                self.pool.changes = []
            case _:
                assert getattr(self.pool, what) == int(expected[0]), what

    def allocate(self, names: str) -> list[int]:
        blocks = self.pool.allocate(len(names))
        assert blocks is not None
        assert len({*blocks}) == len(blocks)
        self.named |= dict(zip(names, blocks, strict=True))
        return blocks

    def none(self, count: str) -> None:
        assert self.pool.allocate(int(count)) is None

    def publish(self, keys: str) -> None:
        """The keys of blocks that have their names, or `key:name`."""
        keys, _, names = keys.partition(":")
        for key, block in zip(keys, self.allocate(names or keys), strict=True):
            self.pool.publish(key.encode(), block)

    def name(self, key: str, name: str) -> None:
        self.pool.publish(key.encode(), self.named[name])

    def release(self, names: str) -> None:
        self.pool.release([self.named[name] for name in names])

    def take(self, name: str) -> None:
        self.pool.take_all([self.named[name]])

    def withdraw(self, name: str) -> None:
        self.pool.withdraw(self.named[name])

    def keep(self, name: str, level: str, seconds: str | None = None) -> None:
        keep = Keep(int(level)) if seconds is None else Keep(int(level), float(seconds))
        self.pool.keep([self.named[name]], keep)

    def evict(self, count: str, evicted: str) -> None:
        assert self.pool.evict(int(count)) == int(evicted)

    def at(self, now: str) -> None:
        self.now = float(now)

    def same(self, names: str) -> None:
        assert len({self.named[name] for name in names}) == 1


@pytest.mark.parametrize(("title", "lines"), paragraphs(Path(__file__).with_name("pools.txt")))
def test_a_pool(title: str, lines: list[str]) -> None:
    Pool(list(lines))


def test_check_notices_a_block_that_is_released_twice_and_a_key_without_its_block() -> None:
    twice, lost = BlockPool(2), BlockPool(2)
    blocks = twice.allocate(1) or []
    twice.release(blocks)
    twice.release(blocks)
    lost._block_of[b"b"] = 1
    for pool in (twice, lost):
        with pytest.raises(AssertionError):
            pool.check()


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
