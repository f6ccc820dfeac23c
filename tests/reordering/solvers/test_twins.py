"""Columns that determine each other in all rows are one column for a search."""

from __future__ import annotations

import numpy as np

from relquery.reordering.encode import encode
from relquery.reordering.items import itemize
from relquery.reordering.solvers.tree import find_twins

TABLE = {
    "id": ["7", "8", "7", "9"],
    "text": ["a", "b", "c", "d"],
    "name": ["film one", "film two", "film one", "film three"],
    "year": ["1999", "1999", "1999", "2000"],
}


def test_columns_with_equal_codes_are_grouped_and_the_most_alike_goes_first() -> None:
    assert find_twins(itemize(encode(TABLE))).members == ((2, 0), (1,), (3,))


def test_a_dependency_that_one_row_breaks_groups_nothing() -> None:
    broken = TABLE | {"id": ["7", "8", "9", "9"]}
    assert not find_twins(itemize(encode(broken))).any


def test_columns_of_a_bag_stay_alone() -> None:
    items = itemize(encode(TABLE), [["id", "name"]])
    assert not find_twins(items).any


def test_twins_weigh_together_and_are_sent_side_by_side() -> None:
    items = itemize(encode(TABLE))
    twins = find_twins(items)
    weights = twins.weigh(items, items.characters)
    both = items.characters[items.slots[2]] + items.characters[items.slots[0]]
    assert weights[items.slots[2]].tolist() == both.tolist()
    fields = twins.expand(np.array([[0, 2, 1], [1, 0, 2]], np.int32))
    assert fields.tolist() == [[2, 0, 3, 1], [1, 2, 0, 3]]
