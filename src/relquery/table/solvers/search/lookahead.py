"""Chooses columns or values for one segment at a time, by their gain plus the best possible
follow-up.

A segment is a run of rows that share their first fields. Columns in which all its rows agree come
first: they cost nothing. Then there are two options: one column for the whole segment, or groups of
equal values, best first, each with its own column (one step of Algorithm 1 in paper 000). An option
is worth what its groups share plus, for every group, the most that a few more columns could add.
Gain alone would pick columns that many rows share but that leave little to share afterwards.
"""

from __future__ import annotations

import numpy as np

from relquery.arrays import Floats, Int32s, Int64s
from relquery.table.compiled import compiled, go_on
from relquery.table.solvers.groups import split_by_value
from relquery.table.solvers.objective import Objective, is_plain
from relquery.table.solvers.search.rollout import (
    Look,
    Reach,
    best_slot,
    measure_gains,
    most_of,
    new_scratch,
    put_agreed_last,
    split_by_slot,
    value_of_groups,
    weigh_slots,
)
from relquery.table.solvers.segment import Problem, Segment, new_segment

REACHES = (Reach(64, 3, 6), Reach(64, 3, 3), Reach(64, 2, 2), Reach(32, 1, 1), Reach(8, 1, 1))

Split = tuple[Int64s, Int64s, Int32s]  # rows by group, where groups start and end, their slots


def reach_within(problem: Problem, visits: float) -> Reach:
    """The farthest lookahead within about this many cell visits; the shortest if none fits."""
    slots, rows = problem.items.shape
    for reach in REACHES:
        below = sum(reach.width**depth for depth in range(reach.depth))
        if rows * slots * (1 + min(reach.first, slots) * below) <= visits:
            return reach
    return REACHES[-1]


def look_ahead(problem: Problem, objective: Objective, reach: Reach) -> tuple[Int64s, Int32s]:
    """(rows, slots by row id). Passages of `problem` change slots."""
    slots, rows = problem.items.shape
    order = np.arange(rows, dtype=np.int64)
    chosen = np.empty((rows, slots), np.int32)
    members = np.empty(rows * slots, np.int32)
    look = Look(problem, objective, reach, new_scratch(problem, reach))
    _solve(look, new_segment(problem), members, order, chosen)
    go_on(problem.stopped)
    return order, chosen


@compiled
def _solve(
    look: Look,
    segment: Segment,
    members: Int32s,
    order: Int64s,
    chosen: Int32s,
) -> None:
    """Fill `order`, and `chosen` by row."""
    problem, objective = look.problem, look.objective
    slots = len(problem.items)
    gain, distinct = np.empty(slots), np.empty(slots, np.int64)
    todo = [(0, len(order), 0, 0.0)]  # (start, stop, placed, weight of the placed fields)
    while todo and not problem.stopped[0]:
        start, stop, placed, begin = todo.pop()
        rows = order[start:stop].copy()
        left = _left(chosen[rows[0], :placed], slots)
        if len(rows) > 1:
            measure_gains(look, rows, left, begin, gain, distinct)
            live, agreed = put_agreed_last(left, gain, distinct)
            for row in rows:
                chosen[row, placed : placed + agreed] = left[live:]
            placed += agreed
            begin += weigh_slots(problem, rows[0], left[live:])
            left = left[:live]
            if agreed and not is_plain(objective):  # a slot's gain depends on its position
                measure_gains(look, rows, left, begin, gain, distinct)
        for row in rows:
            chosen[row, placed:] = left
        if len(rows) == 1 or len(left) == 0:
            continue
        known = chosen[rows[0], :placed]
        split = _best_split(look, segment, members, rows, known, left, begin, gain)
        order[start:stop], starts, slot_of = split
        for k in range(len(slot_of)):
            a, b = start + starts[k], start + starts[k + 1]
            for row in order[a:b]:
                chosen[row, placed] = slot_of[k]
            weight = problem.weights[problem.items[slot_of[k], order[a]]]
            todo.append((a, b, placed + 1, begin + weight))


@compiled
def _best_split(
    look: Look,
    segment: Segment,
    members: Int32s,
    rows: Int64s,
    placed: Int32s,
    left: Int32s,
    begin: float,
    gain: Floats,
) -> Split:
    """Rows by group, for one slot or for the slots of the most valuable groups."""
    reach, scratch = look.reach, look.scratch
    best = most_of(gain[: len(left)])
    visits = scratch.visits[0] + len(rows) * len(left) * (1 + min(reach.first, len(left)))
    if len(rows) > 2 and len(left) > 1 and visits <= reach.visits:
        by_value = split_by_value(look.problem, segment, members, rows, placed)
        value = value_of_groups(look, by_value, left, begin)
        best, value_of_best = best_slot(look, rows, left, begin, gain)
        if value > value_of_best:
            return by_value
    groups = split_by_slot(look, rows, left[best], reach.depth)
    return (
        scratch.rows[reach.depth, : len(rows)].copy(),
        scratch.starts[reach.depth, : groups + 1].copy(),
        np.full(groups, left[best], np.int32),
    )


@compiled
def _left(placed: Int32s, slots: int) -> Int32s:
    is_left = np.ones(slots, np.bool_)
    is_left[placed] = False
    return np.flatnonzero(is_left).astype(np.int32)
