"""`ggr`: Greedy Group Recursion (paper 000, Algorithm 1 and §4.2). See native/solvers/ggr.cpp.

We read early stopping (§4.2.2, §6.5: "row depth 4 and column depth 2, or a threshold of 0.1M") as
follows. A step splits off one group. It is taken if it is within both depths, i.e. one of the first
`row_depth` groups of a segment (L_A) and below fewer than `column_depth` groups (L_B), or if it is
worth `threshold`. The rest of a segment falls back to its own statistics (`fixed`). The stricter
reading, where either limit stops, loses half of the gain on tables of passages.
"""

from __future__ import annotations

from typing import NamedTuple

from relquery import _native
from relquery.reordering.items import Items
from relquery.reordering.solvers.problem import Order, Problem, go_on

NO_LIMIT = 2**62


class GroupLimits(NamedTuple):
    """Early stopping, see above."""

    row_depth: int
    column_depth: int
    threshold: int


PAPER_LIMITS = GroupLimits(row_depth=4, column_depth=2, threshold=100_000)


def ggr(problem: Problem, limits: GroupLimits, visits: int = NO_LIMIT) -> Order:
    """Groups within the limits.

    visits: cells to count; after that, each remaining segment falls back to its own statistics.
    """
    order = _native.ggr(problem, limits, visits)
    go_on(problem.stopped)
    return order


def as_in_paper(problem: Problem, items: Items, limits: GroupLimits = PAPER_LIMITS) -> Order:
    """The order with HITCOUNT, and so the threshold, in squared characters.

    This is so for any weight, because a threshold of 100,000 tokens would mean a different depth.
    """
    return ggr(problem._replace(weights=items.lengths**2), limits)
