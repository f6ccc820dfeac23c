"""`fixed`: one column order for all rows, chosen by statistics, and one sort.

See native/solvers/fixed.cpp.
"""

from __future__ import annotations

from relquery import _native
from relquery.arrays import Int32s, Int64s
from relquery.table.side_by_side import go_on
from relquery.table.solvers.segment import Problem


def fixed(problem: Problem) -> tuple[Int64s, Int32s]:
    """(rows, fields by row id)."""
    found = _native.fixed(problem)
    go_on(problem.stopped)
    return found
