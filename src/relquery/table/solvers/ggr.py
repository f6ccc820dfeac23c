"""`ggr`: Greedy Group Recursion (paper 000, Algorithm 1 and §4.2).

Algorithm 1 takes the group of equal cells with the highest hit count, puts its column first for
the rows of the group (L_B: recursion on these rows without the column), and continues with the
other rows (L_A). We correct three errors in the printed algorithm: lengths of dependent columns are
squared too (line 6), the value goes in front of the group's rows (line 29), and the dependent
columns that line 26 removes are sent next to it. A dependency that does not hold inside the group
is not used there: the column stays in the recursion.

The branch L_A is a loop over groups, best first, from a heap. An entry's score is updated when it
reaches the top, since rows that leave can only lower a score. Cells are counted once per segment
and counts are decremented as rows leave, so O(rows x columns) is the cost of a segment, not of each
step.

We read early stopping (§4.2.2, §6.5: "row depth 4 and column depth 2, or a threshold of 0.1M") as
follows. A step splits off one group. It is taken if it is within both depths, i.e. one of the first
`row_depth` groups of a segment (L_A) and below fewer than `column_depth` groups (L_B), or if it is
worth `threshold`. The rest of a segment falls back to its own statistics (`fixed`). The stricter
reading, where either limit stops, loses half of the gain on tables of passages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Int32s, Int64s
from relquery.table.compiled import compiled, go_on
from relquery.table.items import Items
from relquery.table.solvers.fixed import sort_by_statistics
from relquery.table.solvers.groups import (
    align,
    build_heap,
    list_members,
    pop_best,
    slot_of,
    still_there,
)
from relquery.table.solvers.segment import Problem, Segment, add_row, fill_segment, new_segment

NO_LIMIT = 2**62


class Limits(NamedTuple):
    """Early stopping, see above."""

    row_depth: int
    column_depth: int
    threshold: int


PAPER_LIMITS = Limits(row_depth=4, column_depth=2, threshold=100_000)


class Task(NamedTuple):
    """Rows `order[start:stop]`, whose first `placed` fields are fixed, `depth` groups deep."""

    start: int
    stop: int
    placed: int
    depth: int


class Work(NamedTuple):
    """What is being filled.

    order: (n,), row ids; the rows of a task stay inside its bounds.
    fields: (n, m) by row id. members: (n x m,), scratch: rows of each group of a segment.
    """

    order: Int64s
    fields: Int32s
    members: Int32s


def ggr(problem: Problem, limits: Limits, visits: int = NO_LIMIT) -> tuple[Int64s, Int32s]:
    """(rows, fields by row id).

    visits: cells to count; after that, each remaining segment falls back to its own statistics.
    """
    columns, rows = problem.items.shape
    # Passages change slots, so that a passage shared by a group is in one slot.
    problem = problem._replace(items=problem.items.copy(), places=problem.places.copy())
    work = Work(
        order=np.arange(rows, dtype=np.int64),
        fields=np.zeros((rows, columns), np.int32),
        members=np.empty(rows * columns, np.int32),
    )
    _solve(problem, limits, visits, new_segment(problem), work)
    go_on(problem.stopped)
    fields = np.take_along_axis(problem.places.T, work.fields.astype(np.int64), axis=1)
    return work.order, fields


def as_in_paper(
    problem: Problem, items: Items, limits: Limits = PAPER_LIMITS
) -> tuple[Int64s, Int32s]:
    """(rows, fields by row id) with HITCOUNT, and so the threshold, in squared characters.

    This is so for any weight, because a threshold of 100,000 tokens would mean a different depth.
    """
    return ggr(problem._replace(weights=items.lengths**2), limits)


@compiled
def _solve(problem: Problem, limits: Limits, visits: int, segment: Segment, work: Work) -> None:
    todo = [Task(0, len(work.order), 0, 0)]
    while todo:
        task = todo.pop()
        rows = work.order[task.start : task.stop].copy()
        placed = work.fields[rows[0], : task.placed]
        live = fill_segment(segment, problem, rows, placed)
        visits -= len(rows) * live
        rest = np.arange(len(rows))
        if visits >= 0:
            for i in range(len(rows)):
                if problem.stopped[0]:
                    return
                add_row(segment, problem, i, live, 1)
            rest = _split_groups(problem, limits, segment, work, task, rows, live, todo)
        if len(rest) > 0:
            rest, ranked = sort_by_statistics(segment, problem, rest, live)
            if problem.stopped[0]:
                return
            for k in range(len(rest)):
                at = task.stop - len(rest) + k
                _place(segment, work, at, rows[rest[k]], task.placed, ranked)


@compiled
def _split_groups(
    problem: Problem,
    limits: Limits,
    segment: Segment,
    work: Work,
    task: Task,
    rows: Int64s,
    live: int,
    todo: list[Task],
) -> Int64s:
    """Place groups one by one; their rows' other fields become tasks. Returns the other rows."""
    begin = list_members(segment, work.members, len(rows), live)
    free = limits.row_depth if task.depth < limits.column_depth else 0
    heap = build_heap(segment, live, 1 if free > 0 else limits.threshold)
    alive = np.ones(len(rows), np.bool_)
    at = task.start
    while True:
        group = pop_best(segment, heap, 1 if free > 0 else limits.threshold)
        if group < 0 or problem.stopped[0]:
            return np.flatnonzero(alive)
        free -= 1
        members = still_there(work.members[begin[group] : begin[group + 1]], alive)
        align(segment, problem, rows, members, group, live)
        taken = _take_implied(segment, problem, members, group)
        for k in range(len(members)):
            _place(segment, work, at + k, rows[members[k]], task.placed, taken)
        placed = task.placed + len(taken)
        if placed < work.fields.shape[1]:
            todo.append(Task(at, at + len(members), placed, task.depth + 1))
        at += len(members)
        for i in members:
            alive[i] = False
            add_row(segment, problem, i, live, -1)


@compiled
def _place(segment: Segment, work: Work, at: int, row: int, placed: int, taken: Int64s) -> None:
    """Put a row at `at` in the order, and the taken columns after its first `placed`."""
    work.order[at] = row
    for k in range(len(taken)):
        work.fields[row, placed + k] = segment.columns[taken[k]]


@compiled
def _take_implied(segment: Segment, problem: Problem, members: Int32s, group: int) -> Int64s:
    """Live slots to place: the group's own, then the slots it implies if they hold here."""
    chosen = slot_of(segment, group)
    slot = segment.columns[chosen]
    taken = [np.int64(chosen)]
    for k in range(problem.implied_begin[slot], problem.implied_begin[slot + 1]):
        _take_if_it_holds(segment, members, problem.implied[k], taken)
    for a, b, third in problem.pairs:
        other = b if a == slot else a
        if slot in (a, b) and segment.live_at[other] < 0:  # it is already placed
            _take_if_it_holds(segment, members, third, taken)
    return np.array(taken)


@compiled
def _take_if_it_holds(segment: Segment, members: Int32s, slot: int, taken: list[np.int64]) -> None:
    j = segment.live_at[slot]
    if j < 0 or j in taken:
        return
    for i in members:
        if segment.group[i, j] != segment.group[members[0], j]:
            return
    taken.append(j)
