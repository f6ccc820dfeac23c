"""Breakpoints where blocks end: the same model of a provider, whose prompts are whole blocks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relquery.reordering.cost.billing import Blocks, bill
from relquery.reordering.cost.tokens import Tokens, prefix_tree
from tests.reordering.cost.test_billing import PAID, paid, send

ROWS = st.integers(0, 3).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 3), min_size=width, max_size=width), max_size=6)
)
SIZES = st.lists(st.integers(1, 3), min_size=4, max_size=4)


def blocks_of(rows: list[list[int]], sizes: list[int], head: int = 0, tail: int = 0) -> Blocks:
    width = len(rows[0]) if rows else 0
    sent = np.array(rows, np.int32).reshape(len(rows), width)
    return Blocks.of(sent, np.array(sizes, np.int64), head, tail)


def tokens_of(blocks: Blocks) -> list[list[int]]:
    """Every token of a block says which block it is and where in it: no two blocks begin alike."""
    return [
        [int(block) * 10 + k for block in row for k in range(blocks.sizes[block])]
        for row in blocks.ids
    ]


@given(ROWS, SIZES, st.integers(0, 2), st.integers(0, 2), st.integers(1, 4))
def test_a_provider_charges_what_the_bill_of_blocks_says(
    rows: list[list[int]], sizes: list[int], head: int, tail: int, breakpoints: int
) -> None:
    blocks = blocks_of(rows, sizes, head, tail)
    price = paid(minimum=2, breakpoints=breakpoints)
    result = bill(blocks, price)
    charged = send(tokens_of(blocks), result.breakpoints, price, 10**9)
    assert charged == (result.uncached, result.written, result.read)
    for marks, ends in zip(result.breakpoints, blocks.ends.tolist(), strict=True):
        assert set(marks) <= set(ends)


@given(ROWS, SIZES)
def test_blocks_that_begin_differently_share_what_their_tokens_share(
    rows: list[list[int]], sizes: list[int]
) -> None:
    blocks = blocks_of(rows, sizes, head=1)
    tree, of_tokens = blocks.tree(), prefix_tree(Tokens.of(tokens_of(blocks)))
    assert tree.hits.tolist() == of_tokens.hits.tolist()
    assert tree.depth[tree.leaf].tolist() == of_tokens.depth[of_tokens.leaf].tolist()
    assert blocks.total == sum(map(len, tokens_of(blocks)))


def test_a_mark_goes_back_to_where_a_block_ended() -> None:
    in_tokens = Tokens.of([[1, 1, 2, 7], [1, 1, 3, 7]])  # two blocks: of two tokens, and of two
    assert bill(in_tokens, PAID).breakpoints == [(2,), (2,)]
    shared = Tokens.of([[1, 1, 2, 7], [1, 1, 2, 8]])  # the second blocks begin alike
    assert bill(shared, PAID).breakpoints == [(3,), (3,)]
    assert bill(blocks_of([[0, 1], [0, 2]], [2, 2, 2]), PAID).breakpoints == [(2,), (2,)]


def test_prompts_without_blocks_cost_nothing() -> None:
    nothing: list[list[list[int]]] = [[], [[]], [[], []]]
    for rows in nothing:
        result = bill(blocks_of(rows, []), PAID)
        assert (result.tokens, result.breakpoints) == (0, [()] * len(rows))
