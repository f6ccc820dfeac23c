"""Which prompts are sent to one machine of a provider."""

from __future__ import annotations

import numpy as np

from relquery.reordering.cost.billing import Blocks
from relquery.sql.caching import alike, together

# Tokens of the blocks: rules, films, rows.
RULES, FILM, ROW = 1100, 2000, 10


def blocks(films: int, rows: int) -> Blocks:
    """Rules that all share, then a film, then a row of its own."""
    ids = [[0, 1 + film, 100 + film * rows + row] for film in range(films) for row in range(rows)]
    sizes = np.full(100 + films * rows, ROW)
    sizes[0], sizes[1:100] = RULES, FILM
    return Blocks(np.array(ids, np.int32), sizes)


def test_all_go_together_where_no_machine_has_a_limit() -> None:
    assert together(blocks(6, 5), 1024, None).tolist() == [1] * 30


def test_groups_go_apart_where_all_are_more_than_a_machine_takes() -> None:
    assert together(blocks(6, 5), 1024, 15).tolist() == [2] * 30


def test_small_groups_stay_with_what_more_share() -> None:
    some = blocks(15, 1)
    assert together(some, 1024, 15).tolist() == [1] * 15


def test_prefixes_below_the_minimum_are_no_reason() -> None:
    assert together(blocks(6, 1), 1200, 15).tolist() == [0] * 6
    assert together(Blocks(np.zeros((0, 3), np.int32), np.zeros(1, np.int64)), 1, 15).tolist() == []


def test_prompts_that_begin_alike_are_counted_block_by_block() -> None:
    assert alike(blocks(2, 2)).tolist() == [[4, 2, 1]] * 4
