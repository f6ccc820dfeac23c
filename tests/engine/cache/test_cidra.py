"""Moves in place end where simultaneous ones would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.cache.cidra import Batch, Move, plan_batches

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
