"""Groups of equal cells inside a segment of rows: what the solvers count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.table.columns import Int32s, Int64s
from relquery.table.compiled import compiled


class Problem(NamedTuple):
    """What is to be ordered; read only.

    codes: (m, n), the transpose of Columns.codes, so that every table has one memory layout and
        the code is compiled once. offsets: as in Columns.
    weights: what a hit on each distinct value is worth, parallel to Columns.lengths.
    classes: (m,), columns of one class determine one another.
    """

    codes: Int32s
    offsets: Int64s
    weights: Int64s
    classes: Int32s


class Segment(NamedTuple):
    """Groups of equal cells in a run of rows; the arrays are reused from segment to segment.

    columns: (m,), the columns not yet placed, ascending; the first `live` count.
    group: (n, m), group of the cell of the segment's row i in the j-th live column. Groups of a
        column are numbered together, column after column.
    first: (m + 1,), first group of the j-th live column.
    size: (groups,), rows of the group that are still in the segment.
    worth: (groups,), summed weight of their cells, those in columns of the same class included.
    key: (groups,), position of the group's value in Problem.weights.
    group_of, class_worth: scratch per distinct value (-1) and per class (0) between calls.
    """

    columns: Int32s
    group: Int32s
    first: Int64s
    size: Int32s
    worth: Int64s
    key: Int64s
    group_of: Int32s
    class_worth: Int64s


def new_segment(problem: Problem) -> Segment:
    """Space for any segment of the table."""
    columns, rows = problem.codes.shape
    values = len(problem.weights)
    return Segment(
        columns=np.zeros(columns, np.int32),
        group=np.zeros((rows, columns), np.int32),
        first=np.zeros(columns + 1, np.int64),
        size=np.zeros(values, np.int32),
        worth=np.zeros(values, np.int64),
        key=np.zeros(values, np.int64),
        group_of=np.full(values, -1, np.int32),
        class_worth=np.zeros(columns, np.int64),
    )


@compiled
def fill_segment(segment: Segment, problem: Problem, rows: Int64s, placed: Int32s) -> int:
    """Group the cells of these rows in the columns not in `placed`; gives the live columns.

    O(rows x live columns). Sizes and worths start at 0: `add_row` fills them.
    """
    live = _find_live(segment, placed)
    groups = 0
    for j in range(live):
        column = segment.columns[j]
        offset = problem.offsets[column]
        for i in range(len(rows)):
            key = offset + problem.codes[column, rows[i]]
            group = segment.group_of[key]
            if group < 0:
                group = groups
                groups += 1
                segment.group_of[key] = group
                segment.key[group] = key
                segment.size[group] = segment.worth[group] = 0
            segment.group[i, j] = group
        segment.first[j + 1] = groups
        for group in range(segment.first[j], groups):
            segment.group_of[segment.key[group]] = -1
    return live


@compiled
def _find_live(segment: Segment, placed: Int32s) -> int:
    is_placed = np.zeros(len(segment.columns), np.bool_)
    is_placed[placed] = True
    live = 0
    for column in range(len(segment.columns)):
        if not is_placed[column]:
            segment.columns[live] = column
            live += 1
    return live


@compiled
def add_row(segment: Segment, problem: Problem, row: int, live: int, sign: int) -> None:
    """Add the segment's row to (sign 1), or take it from (-1), the counts of all its cells."""
    for j in range(live):
        weight = problem.weights[segment.key[segment.group[row, j]]]
        segment.class_worth[problem.classes[segment.columns[j]]] += weight
    for j in range(live):
        group = segment.group[row, j]
        segment.size[group] += sign
        segment.worth[group] += sign * segment.class_worth[problem.classes[segment.columns[j]]]
    for j in range(live):
        segment.class_worth[problem.classes[segment.columns[j]]] = 0
