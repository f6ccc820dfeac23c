"""Columns chosen a segment at a time, by what they gain together with what can follow.

A segment is a run of rows that share their first fields. Columns in which all its rows agree come
first: they cost nothing. Among the others each of the best is tried: its gain (what its groups
share) plus, for every group, the best that a few more columns could add, is what it is ranked by.
Gain alone picks columns that many rows share and after which little is left to share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.table.columns import Float64s, Int32s, Int64s
from relquery.table.compiled import compiled
from relquery.table.solvers.objective import Objective, worth
from relquery.table.solvers.segment import Problem


class Reach(NamedTuple):
    """How far to look: `first` columns are tried for a segment, and below each of them the `width`
    that gain most, `depth` columns deep."""

    first: int
    depth: int
    width: int


REACHES = (Reach(64, 3, 6), Reach(64, 3, 3), Reach(64, 2, 2), Reach(32, 1, 1), Reach(8, 1, 1))


class Scratch(NamedTuple):
    """Space that is used again and again.

    stamp: (1,), counts up, so that `seen`, per item, need not be cleared. tally, place: per item,
        rows that have it and its number among those seen. found: (n,), items seen.
    rows, starts: per depth, the rows of a segment by group and where groups start.
    """

    stamp: Int64s
    seen: Int64s
    tally: Int32s
    place: Int32s
    found: Int32s
    rows: Int64s
    starts: Int64s


def reach_within(problem: Problem, visits: float) -> Reach:
    """The farthest look at a table that takes about so many visits of a cell, or the shortest."""
    slots, rows = problem.items.shape
    for reach in REACHES:
        below = sum(reach.width**depth for depth in range(reach.depth))
        if rows * slots * (1 + min(reach.first, slots) * below) <= visits:
            return reach
    return REACHES[-1]


def columns_by_lookahead(
    problem: Problem, objective: Objective, reach: Reach
) -> tuple[Int64s, Int32s]:
    """(rows, slots by row id)."""
    slots, rows = problem.items.shape
    scratch = Scratch(
        stamp=np.zeros(1, np.int64),
        seen=np.zeros(len(problem.weights), np.int64),
        tally=np.zeros(len(problem.weights), np.int32),
        place=np.zeros(len(problem.weights), np.int32),
        found=np.zeros(rows, np.int32),
        rows=np.empty((reach.depth + 1, rows), np.int64),
        starts=np.empty((reach.depth + 1, rows + 1), np.int64),
    )
    order = np.arange(rows, dtype=np.int64)
    chosen = np.empty((rows, slots), np.int32)
    _solve(problem, objective, reach, scratch, order, chosen)
    return order, chosen


@compiled
def _solve(
    problem: Problem,
    objective: Objective,
    reach: Reach,
    scratch: Scratch,
    order: Int64s,
    chosen: Int32s,
) -> None:
    slots = len(problem.items)
    gain, distinct = np.empty(slots), np.empty(slots, np.int64)
    todo = [(0, len(order), 0, 0.0)]  # rows order[start:stop] share `placed` fields of that weight
    while todo:
        start, stop, placed, begin = todo.pop()
        rows = order[start:stop]
        left = _left(chosen[rows[0], :placed], slots)
        if len(rows) > 1:
            _measure(problem, objective, scratch, rows, left, begin, gain, distinct)
            live, agreed = _agreed_first(left, gain, distinct)
            for row in rows:
                chosen[row, placed : placed + agreed] = left[live:]
            begin += _weigh(problem, rows[0], left[live:])
            left = left[:live]
            if agreed and objective.minimum > 0:  # what a slot gains depends on where it begins
                _measure(problem, objective, scratch, rows, left, begin, gain, distinct)
            placed += agreed
        if len(rows) == 1 or len(left) < 2:
            for row in rows:
                chosen[row, placed:] = left
        if len(rows) == 1 or len(left) == 0:
            continue
        best = 0
        if len(rows) > 2 and len(left) > 1:
            best = _best_column(problem, objective, reach, scratch, rows, left, begin, gain)
        slot = left[best]
        groups = _split(problem, scratch, rows, slot, reach.depth)
        order[start:stop] = scratch.rows[reach.depth, : len(rows)]
        starts = scratch.starts[reach.depth]
        for row in rows:
            chosen[row, placed] = slot
        for group in range(groups):
            a, b = start + starts[group], start + starts[group + 1]
            weight = problem.weights[problem.items[slot, order[a]]]
            todo.append((a, b, placed + 1, begin + weight))


@compiled
def _left(placed: Int32s, slots: int) -> Int32s:
    is_left = np.ones(slots, np.bool_)
    is_left[placed] = False
    return np.flatnonzero(is_left).astype(np.int32)


@compiled
def _weigh(problem: Problem, row: int, slots: Int32s) -> float:
    total = 0.0
    for slot in slots:
        total += problem.weights[problem.items[slot, row]]
    return total


@compiled
def _agreed_first(left: Int32s, gain: Float64s, distinct: Int64s) -> tuple[int, int]:
    """Move slots with one distinct item behind the others: (others, such slots)."""
    agreed = left[distinct[: len(left)] == 1]
    live = 0
    for k in range(len(left)):
        if distinct[k] != 1:
            left[live], gain[live], distinct[live] = left[k], gain[k], distinct[k]
            live += 1
    left[live:] = agreed
    return live, len(agreed)


@compiled
def _measure(
    problem: Problem,
    objective: Objective,
    scratch: Scratch,
    rows: Int64s,
    slots: Int32s,
    begin: float,
    gain: Float64s,
    distinct: Int64s,
) -> None:
    """Per slot, what rows gain if it comes next, and its distinct items."""
    for k in range(len(slots)):
        scratch.stamp[0] += 1
        stamp = scratch.stamp[0]
        found = 0
        for row in rows:
            item = problem.items[slots[k], row]
            if scratch.seen[item] == stamp:
                scratch.tally[item] += 1
            else:
                scratch.seen[item] = stamp
                scratch.tally[item] = 1
                scratch.found[found] = item
                found += 1
        total = 0.0
        for item in scratch.found[:found]:
            if scratch.tally[item] > 1:
                end = begin + problem.weights[item]
                total += worth(objective, begin, end, scratch.tally[item])
        gain[k], distinct[k] = total, found


@compiled
def _split(problem: Problem, scratch: Scratch, rows: Int64s, slot: int, depth: int) -> int:
    """Put rows by group into the scratch space of that depth; gives the number of groups."""
    scratch.stamp[0] += 1
    stamp = scratch.stamp[0]
    out, starts = scratch.rows[depth], scratch.starts[depth]
    groups = 0
    for row in rows:
        item = problem.items[slot, row]
        if scratch.seen[item] != stamp:
            scratch.seen[item] = stamp
            scratch.place[item] = groups
            starts[groups] = 0
            groups += 1
        starts[scratch.place[item]] += 1
    total = 0
    for group in range(groups):
        size = starts[group]
        starts[group] = total
        total += size
    for row in rows:
        group = scratch.place[problem.items[slot, row]]
        out[starts[group]] = row
        starts[group] += 1
    for group in range(groups, 0, -1):
        starts[group] = starts[group - 1]
    starts[0] = 0
    return groups


@compiled
def _best_column(
    problem: Problem,
    objective: Objective,
    reach: Reach,
    scratch: Scratch,
    rows: Int64s,
    left: Int32s,
    begin: float,
    gain: Float64s,
) -> int:
    """Where in `left` the slot stands that should come next."""
    best, best_value = 0, -1.0
    by_gain = np.argsort(-gain[: len(left)], kind="mergesort")
    tried = np.zeros(len(problem.classes), np.bool_)
    for k in by_gain[: reach.first]:
        which = problem.classes[left[k]]
        if tried[which]:
            continue  # a slot that determines this one, and is determined by it, was tried
        tried[which] = True
        value = gain[k] + _after(problem, objective, reach, scratch, rows, left, k, begin)
        if value > best_value:
            best, best_value = k, value
    return best


@compiled
def _after(
    problem: Problem,
    objective: Objective,
    reach: Reach,
    scratch: Scratch,
    rows: Int64s,
    left: Int32s,
    k: int,
    begin: float,
) -> float:
    """What the groups of slot left[k] can gain with what follows it."""
    depth = reach.depth
    groups = _split(problem, scratch, rows, left[k], depth)
    starts = scratch.starts[depth]
    others = np.delete(left, k)
    total = 0.0
    for group in range(groups):
        if starts[group + 1] - starts[group] > 1:
            members = scratch.rows[depth, starts[group] : starts[group + 1]]
            end = begin + problem.weights[problem.items[left[k], members[0]]]
            total += _roll_out(problem, objective, reach, scratch, members, others, end, depth - 1)
    return total


@compiled
def _roll_out(
    problem: Problem,
    objective: Objective,
    reach: Reach,
    scratch: Scratch,
    rows: Int64s,
    slots: Int32s,
    begin: float,
    depth: int,
) -> float:
    """What a group of at least two rows can gain with these slots, `depth` columns deep."""
    if len(slots) == 0:
        return 0.0
    if len(rows) == 2:
        return _pair(problem, objective, rows, slots, begin)
    gain, distinct = np.empty(len(slots)), np.empty(len(slots), np.int64)
    _measure(problem, objective, scratch, rows, slots, begin, gain, distinct)
    slots = slots.copy()
    live, agreed = _agreed_first(slots, gain, distinct)
    end = begin + _weigh(problem, rows[0], slots[live:])
    base = worth(objective, begin, end, len(rows)) if agreed else 0.0
    slots = slots[:live]
    if live == 0:
        return base
    if agreed and objective.minimum > 0:  # what a slot gains depends on where it begins
        _measure(problem, objective, scratch, rows, slots, end, gain, distinct)
    best = float(gain[:live].max())
    if depth == 0 or live < 2:
        return base + best
    for _ in range(min(reach.width, live)):
        k = gain[:live].argmax()
        value, gain[k] = gain[k], -1.0
        if distinct[k] == len(rows):
            break
        groups = _split(problem, scratch, rows, slots[k], depth)
        starts = scratch.starts[depth]
        others = np.delete(slots, k)
        for group in range(groups):
            if starts[group + 1] - starts[group] > 1:
                members = scratch.rows[depth, starts[group] : starts[group + 1]]
                here = end + problem.weights[problem.items[slots[k], members[0]]]
                value += _roll_out(
                    problem, objective, reach, scratch, members, others, here, depth - 1
                )
        best = max(best, value)
    return base + best


@compiled
def _pair(
    problem: Problem, objective: Objective, rows: Int64s, slots: Int32s, begin: float
) -> float:
    end = begin
    for slot in slots:
        item = problem.items[slot, rows[0]]
        if item == problem.items[slot, rows[1]]:
            end += problem.weights[item]
    return worth(objective, begin, end, 2)
