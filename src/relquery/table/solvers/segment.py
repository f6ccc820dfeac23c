"""Groups of equal cells in a segment of rows, which the solvers count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Bools, Int32s, Int64s
from relquery.table.compiled import compiled


class Problem(NamedTuple):
    """The rows to order, as sets of items (see relquery.table.items); read only.

    items: (m, n), the item in each slot of each row. Without bags, slot c is column c.
    places: (m, n), the column of that item.
    bags: (m,), the same number for slots whose items are interchangeable.
    weights: (items,), what a hit on each item is worth.
    classes: (m,), slots of one class determine each other. No slot of a bag is in a class.
    implied_begin: (m + 1,), implied: slots that slot c alone determines are
        `implied[implied_begin[c]:implied_begin[c + 1]]`.
    pairs: (p, 3), two slots that together determine the third.
    stopped: (1,), set to end every search on this problem (see relquery.table.compiled).
    """

    items: Int32s
    places: Int32s
    bags: Int32s
    weights: Int64s
    classes: Int32s
    implied_begin: Int64s
    implied: Int32s
    pairs: Int32s
    stopped: Bools


def pose(
    items: Int32s, bags: Int32s, weights: Int64s, implied: Bools, pairs: Int32s | None = None
) -> Problem:
    """The problem of a table. implied: (m, m), whether column a alone determines column b.

    pairs: (p, 3), columns of which the first two together determine the third.

    The passages of a row are ordered by how many rows have them, so that common passages end up in
    the same slots.
    """
    slots, rows = items.shape
    places = np.repeat(np.arange(slots, dtype=np.int32)[:, None], rows, axis=1)
    items = items.copy()
    count = np.bincount(items.ravel(), minlength=len(weights))
    for bag in np.unique(bags):
        members = np.flatnonzero(bags == bag)
        if len(members) > 1:
            inside = items[members]
            order = np.lexsort((inside, -count[inside]), axis=0)
            items[members] = np.take_along_axis(inside, order, axis=0)
            places[members] = members[order]
    mutual = implied & implied.T
    np.fill_diagonal(mutual, True)
    classes = mutual.argmax(axis=1).astype(np.int32) if slots else np.empty(0, np.int32)
    others = implied & ~np.eye(slots, dtype=np.bool_)
    begin = np.concatenate([[0], np.cumsum(others.sum(axis=1))]).astype(np.int64)
    return Problem(
        items=items,
        places=places,
        bags=bags,
        weights=weights,
        classes=classes,
        implied_begin=begin,
        implied=np.nonzero(others)[1].astype(np.int32),
        pairs=np.empty((0, 3), np.int32) if pairs is None else pairs,
        stopped=np.zeros(1, np.bool_),
    )


class Segment(NamedTuple):
    """Groups of equal items in a run of rows; the arrays are reused from segment to segment.

    columns: (m,), the slots not yet placed, ascending; the first `live` count.
    group: (n, m), group of the item of the segment's row i in the j-th live slot. Groups are
        numbered in the order of first appearance, slot after slot.
    first: (m + 1,), groups that appeared before the j-th live slot.
    size: (groups,), rows of the group that are still in the segment.
    worth: (groups,), total weight of their items, including those in implied slots.
    key: (groups,), the item of the group.
    group_of: scratch per item, -1 between calls.
    live_at: (m,), position of a slot among the live ones; -1 if it is placed.
    """

    columns: Int32s
    group: Int32s
    first: Int64s
    size: Int32s
    worth: Int64s
    key: Int64s
    group_of: Int32s
    live_at: Int64s


def new_segment(problem: Problem) -> Segment:
    """Space for any segment of the table."""
    slots, rows = problem.items.shape
    items = len(problem.weights)
    return Segment(
        columns=np.zeros(slots, np.int32),
        group=np.zeros((rows, slots), np.int32),
        first=np.zeros(slots + 1, np.int64),
        size=np.zeros(items, np.int32),
        worth=np.zeros(items, np.int64),
        key=np.zeros(items, np.int64),
        group_of=np.full(items, -1, np.int32),
        live_at=np.full(slots, -1, np.int64),
    )


@compiled
def fill_segment(segment: Segment, problem: Problem, rows: Int64s, placed: Int32s) -> int:
    """Group the items of these rows in the slots not in `placed`. Returns the number of live slots.

    O(rows x live slots). Sizes and worths start at 0: `add_row` fills them.
    """
    live = _find_live(segment, placed)
    groups = 0
    for j in range(live):
        slot = segment.columns[j]
        for i in range(len(rows)):
            key = problem.items[slot, rows[i]]
            group = segment.group_of[key]
            if group < 0:
                group = groups
                groups += 1
                segment.group_of[key] = group
                segment.key[group] = key
                segment.size[group] = segment.worth[group] = 0
            segment.group[i, j] = group
        segment.first[j + 1] = groups
    for group in range(groups):
        segment.group_of[segment.key[group]] = -1
    return live


@compiled
def _find_live(segment: Segment, placed: Int32s) -> int:
    segment.live_at[:] = 0
    segment.live_at[placed] = -1
    live = 0
    for slot in range(len(segment.columns)):
        if segment.live_at[slot] == 0:
            segment.columns[live] = slot
            segment.live_at[slot] = live
            live += 1
    return live


@compiled
def add_row(segment: Segment, problem: Problem, row: int, live: int, sign: int) -> None:
    """Add a row of the segment to the counts of all its items (sign 1), or subtract it (-1)."""
    for j in range(live):
        group = segment.group[row, j]
        worth = problem.weights[segment.key[group]]
        slot = segment.columns[j]
        for k in range(problem.implied_begin[slot], problem.implied_begin[slot + 1]):
            other = segment.live_at[problem.implied[k]]
            if other >= 0:
                worth += problem.weights[segment.key[segment.group[row, other]]]
        segment.size[group] += sign
        segment.worth[group] += sign * worth
