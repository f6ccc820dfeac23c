"""Columns and values by lookahead, one segment at a time. See native/solvers/lookahead.cpp."""

from __future__ import annotations

from typing import NamedTuple

from relquery import _native
from relquery.arrays import Int32s, Int64s
from relquery.table.side_by_side import go_on
from relquery.table.solvers.objective import Objective
from relquery.table.solvers.segment import Problem


class Reach(NamedTuple):
    """How far to look: try `first` columns for a segment, and below each the `width` columns that
    gain the most, `depth` columns deep. After `visits` cells, only the gain decides."""

    first: int
    depth: int
    width: int
    visits: int = 2**62


REACHES = (Reach(64, 3, 6), Reach(64, 3, 3), Reach(64, 2, 2), Reach(32, 1, 1), Reach(8, 1, 1))


def reach_within(problem: Problem, visits: float) -> Reach:
    """The farthest lookahead within about this many cell visits; the shortest if none fits."""
    slots, rows = problem.items.shape
    for reach in REACHES:
        below = sum(reach.width**depth for depth in range(reach.depth))
        if rows * slots * (1 + min(reach.first, slots) * below) <= visits:
            return reach
    return REACHES[-1]


def look_ahead(
    problem: Problem, objective: Objective, reach: Reach
) -> tuple[Int64s, Int32s, Int32s]:
    """(rows, slots by row id, items in the slots then: passages change slots)."""
    found = _native.look_ahead(problem, objective, reach)
    go_on(problem.stopped)
    return found
