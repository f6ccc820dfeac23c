"""Groups of rows that share an item, most valuable first."""

from __future__ import annotations

import heapq

import numpy as np

from relquery.arrays import Bools, Int32s, Int64s
from relquery.table.compiled import compiled
from relquery.table.solvers.segment import Problem, Segment, add_row, fill_segment

Heap = list[tuple[int, int, int]]  # (-score, item, group)


@compiled
def list_members(segment: Segment, members: Int32s, rows: int, live: int) -> Int64s:
    """List the rows of each group. Returns where each group begins."""
    groups = segment.first[live]
    begin = np.zeros(groups + 1, np.int64)
    for group in range(groups):
        begin[group + 1] = begin[group] + segment.size[group]
    fill = begin.copy()
    for j in range(live):
        for i in range(rows):
            group = segment.group[i, j]
            members[fill[group]] = i
            fill[group] += 1
    return begin


@compiled
def align(
    segment: Segment, problem: Problem, rows: Int64s, members: Int32s, group: int, live: int
) -> None:
    """Move the item of a group to the same slot in all its rows."""
    chosen = slot_of(segment, group)
    slot = segment.columns[chosen]
    for i in members:
        for j in range(chosen, live):
            if segment.group[i, j] == group:
                break
        if j != chosen:
            row, other = rows[i], segment.columns[j]
            _swap(problem.items, slot, other, row)
            _swap(problem.places, slot, other, row)
            segment.group[i, j] = segment.group[i, chosen]
            segment.group[i, chosen] = group


@compiled
def _swap(array: Int32s, a: int, b: int, row: int) -> None:
    array[a, row], array[b, row] = array[b, row], array[a, row]


@compiled
def slot_of(segment: Segment, group: int) -> int:
    """The live slot where a group appears first."""
    chosen = 0
    while segment.first[chosen + 1] <= group:
        chosen += 1
    return chosen


@compiled
def _hit_count(segment: Segment, group: int) -> int:
    """HITCOUNT (lines 3-8): mean worth of the group's rows x (rows - 1), rounded down."""
    count = int(segment.size[group])
    if count < 2:
        return 0
    worth = int(segment.worth[group])
    return worth // count * (count - 1) + worth % count * (count - 1) // count


@compiled
def build_heap(segment: Segment, live: int, least: int) -> Heap:
    """Groups worth at least `least` and more than 0, best on top; ties by column, then by value."""
    heap = [(0, 0, 0) for _ in range(0)]  # empty, but typed
    for group in range(segment.first[live]):
        score = _hit_count(segment, group)
        if score >= max(least, 1):
            heap.append((-score, int(segment.key[group]), int(group)))
    heapq.heapify(heap)
    return heap


@compiled
def pop_best(segment: Segment, heap: Heap, least: int) -> int:
    """The group worth the most now, or -1 if that is less than `least` or 0."""
    while len(heap) > 0:
        negated, key, group = heap[0]
        score = _hit_count(segment, group)
        if score < -negated:
            heapq.heapreplace(heap, (-score, key, group))
        elif score < max(least, 1):
            return -1
        else:
            heapq.heappop(heap)
            return group
    return -1


@compiled
def split_by_value(
    problem: Problem, segment: Segment, members: Int32s, rows: Int64s, placed: Int32s
) -> tuple[Int64s, Int64s, Int32s]:
    """Split rows into groups of equal items, most valuable first, each in any slot.

    Returns (rows by group, where each group starts and the last one ends, slot of each group). Rows
    that share nothing with the remaining rows come last. Passages of `problem` change slots.
    members: (n x m,), scratch.
    """
    live = fill_segment(segment, problem, rows, placed)
    for i in range(len(rows)):
        if problem.stopped[0]:
            return rows, np.array([0, len(rows)]), segment.columns[:1].copy()
        add_row(segment, problem, i, live, 1)
    begin = list_members(segment, members, len(rows), live)
    heap = build_heap(segment, live, 1)
    alive = np.ones(len(rows), np.bool_)
    order, slots = np.empty_like(rows), np.empty(len(rows), np.int32)
    starts = np.zeros(len(rows) + 1, np.int64)
    groups, at = 0, 0
    group = pop_best(segment, heap, 1)
    while group >= 0 and not problem.stopped[0]:
        found = still_there(members[begin[group] : begin[group + 1]], alive)
        align(segment, problem, rows, found, group, live)
        slots[groups] = segment.columns[slot_of(segment, group)]
        for i in found:
            order[at] = rows[i]
            at += 1
            alive[i] = False
            add_row(segment, problem, i, live, -1)
        groups += 1
        starts[groups] = at
        group = pop_best(segment, heap, 1)
    for i in range(len(rows)):
        if alive[i]:
            order[at] = rows[i]
            at += 1
    return order, starts[: groups + 1], slots[:groups]


@compiled
def still_there(members: Int32s, alive: Bools) -> Int32s:
    """The rows of a group that no other group has taken."""
    found = np.empty_like(members)
    filled = 0
    for i in members:
        if alive[i]:
            found[filled] = i
            filled += 1
    return found[:filled]
