"""The value of a choice for a segment: its own gain plus the best possible follow-up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Floats, Int32s, Int64s
from relquery.table.compiled import compiled
from relquery.table.solvers.objective import Objective, is_plain, worth
from relquery.table.solvers.segment import Problem


class Reach(NamedTuple):
    """How far to look: try `first` columns for a segment, and below each the `width` columns that
    gain the most, `depth` columns deep. After `visits` cells, only the gain decides."""

    first: int
    depth: int
    width: int
    visits: int = 2**62


class Scratch(NamedTuple):
    """Space that is reused.

    stamp: (1,), counts up, so that `seen`, per item, does not have to be cleared. tally, place: per
        item, rows that have it and its number among the items seen. found: (n,), items seen.
    rows, starts: per depth, the rows of a segment by group and where groups start.
    visits: (1,), cells looked at, a measure of time.
    """

    stamp: Int64s
    seen: Int64s
    tally: Int32s
    place: Int32s
    found: Int32s
    rows: Int64s
    starts: Int64s
    visits: Int64s


def new_scratch(problem: Problem, reach: Reach) -> Scratch:
    """Space for any segment of the table."""
    rows = problem.items.shape[1]
    values = len(problem.weights)
    return Scratch(
        stamp=np.zeros(1, np.int64),
        seen=np.zeros(values, np.int64),
        tally=np.zeros(values, np.int32),
        place=np.zeros(values, np.int32),
        found=np.zeros(rows, np.int32),
        rows=np.empty((reach.depth + 1, rows), np.int64),
        starts=np.empty((reach.depth + 1, rows + 1), np.int64),
        visits=np.zeros(1, np.int64),
    )


class Look(NamedTuple):
    """A lookahead: the problem, the objective, its reach, and scratch space."""

    problem: Problem
    objective: Objective
    reach: Reach
    scratch: Scratch


@compiled
def weigh_slots(problem: Problem, row: int, slots: Int32s) -> float:
    total = 0.0
    for slot in slots:
        total += problem.weights[problem.items[slot, row]]
    return total


@compiled
def put_agreed_last(left: Int32s, gain: Floats, distinct: Int64s) -> tuple[int, int]:
    """Move slots with one distinct item after the others: (number of others, number of these)."""
    agreed = np.empty_like(left)
    live = 0
    for k in range(len(left)):
        if distinct[k] == 1:
            agreed[k - live] = left[k]
        else:
            left[live], gain[live], distinct[live] = left[k], gain[k], distinct[k]
            live += 1
    for k in range(live, len(left)):
        left[k] = agreed[k - live]
    return live, len(left) - live


@compiled
def measure_gains(
    look: Look,
    rows: Int64s,
    slots: Int32s,
    begin: float,
    gain: Floats,
    distinct: Int64s,
) -> None:
    """Per slot, what rows gain if it comes next, and its number of distinct items."""
    problem, scratch = look.problem, look.scratch
    scratch.visits[0] += len(slots) * len(rows)
    for k in range(len(slots)):
        if problem.stopped[0]:
            gain[k], distinct[k] = 0.0, 0
            continue
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
                total += worth(look.objective, begin, end, scratch.tally[item])
        gain[k], distinct[k] = total, found


@compiled
def split_by_slot(look: Look, rows: Int64s, slot: int, depth: int) -> int:
    """Group rows into the scratch space of that depth. Returns the number of groups."""
    problem, scratch = look.problem, look.scratch
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
def best_slot(
    look: Look,
    rows: Int64s,
    left: Int32s,
    begin: float,
    gain: Floats,
) -> tuple[int, float]:
    """(position in `left` of the slot that should come next, its value)."""
    problem = look.problem
    best, best_value = 0, -1.0
    untried = gain[: len(left)].copy()
    tried = np.zeros(len(problem.classes), np.bool_)
    for _ in range(min(look.reach.first, len(left))):
        k = most_of(untried)
        untried[k] = -1.0
        if problem.stopped[0]:
            break
        which = problem.classes[left[k]]
        if tried[which]:
            continue  # a slot that determines this one, and is determined by it, was tried
        tried[which] = True
        value = gain[k] + _after(look, rows, left, k, begin)
        if value > best_value:
            best, best_value = k, value
    return best, best_value


@compiled
def _after(
    look: Look,
    rows: Int64s,
    left: Int32s,
    k: int,
    begin: float,
) -> float:
    """What the groups of slot left[k] can gain with the slots after it."""
    problem, scratch = look.problem, look.scratch
    depth = look.reach.depth
    groups = split_by_slot(look, rows, left[k], depth)
    starts = scratch.starts[depth]
    others = _without(left, left[k])
    total = 0.0
    for group in range(groups):
        if starts[group + 1] - starts[group] > 1:
            members = scratch.rows[depth, starts[group] : starts[group + 1]]
            end = begin + problem.weights[problem.items[left[k], members[0]]]
            total += _roll_out(look, members, others, end, depth - 1)
    return total


@compiled
def value_of_groups(
    look: Look,
    split: tuple[Int64s, Int64s, Int32s],
    left: Int32s,
    begin: float,
) -> float:
    """What groups, each with its own slot, gain together with the slots that can follow."""
    problem = look.problem
    by_group, starts, slots = split
    total = 0.0
    for k in range(len(slots)):
        members = by_group[starts[k] : starts[k + 1]]
        end = begin + problem.weights[problem.items[slots[k], members[0]]]
        others = _without(left, slots[k])
        total += worth(look.objective, begin, end, len(members))
        total += _roll_out(look, members, others, end, look.reach.depth - 1)
    return total


@compiled
def _roll_out(
    look: Look,
    rows: Int64s,
    slots: Int32s,
    begin: float,
    depth: int,
) -> float:
    """What a group of at least two rows can gain with these slots, `depth` columns deep."""
    problem, objective, scratch = look.problem, look.objective, look.scratch
    if len(slots) == 0 or problem.stopped[0]:
        return 0.0
    if len(rows) == 2:
        scratch.visits[0] += len(slots)
        return _pair(problem, objective, rows, slots, begin)
    gain, distinct = np.empty(len(slots)), np.empty(len(slots), np.int64)
    measure_gains(look, rows, slots, begin, gain, distinct)
    slots = slots.copy()
    live, agreed = put_agreed_last(slots, gain, distinct)
    end = begin + weigh_slots(problem, rows[0], slots[live:])
    base = worth(objective, begin, end, len(rows)) if agreed else 0.0
    slots = slots[:live]
    if live == 0:
        return base
    if agreed and not is_plain(objective):  # a slot's gain depends on its position
        measure_gains(look, rows, slots, end, gain, distinct)
    gain = gain[:live]
    best = float(gain[most_of(gain)])
    if depth == 0 or live < 2:
        return base + best
    for _ in range(min(look.reach.width, live)):
        k = most_of(gain)
        value, gain[k] = gain[k], -1.0
        if distinct[k] == len(rows):
            break
        groups = split_by_slot(look, rows, slots[k], depth)
        starts = scratch.starts[depth]
        others = _without(slots, slots[k])
        for group in range(groups):
            if starts[group + 1] - starts[group] > 1:
                members = scratch.rows[depth, starts[group] : starts[group + 1]]
                here = end + problem.weights[problem.items[slots[k], members[0]]]
                value += _roll_out(look, members, others, here, depth - 1)
        best = max(best, value)
    return base + best


@compiled
def most_of(gain: Floats) -> int:
    """The index of the highest gain; the first one on ties."""
    best = 0
    for k in range(1, len(gain)):
        if gain[k] > gain[best]:
            best = k
    return best


@compiled
def _without(slots: Int32s, slot: int) -> Int32s:
    others = np.empty(len(slots) - 1, np.int32)
    filled = 0
    for each in slots:
        if each != slot:
            others[filled] = each
            filled += 1
    return others


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
