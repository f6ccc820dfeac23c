"""The rows to order, and what sharing a prefix is worth, as the solvers see them.

Also the orders that need little search: `original`, as given; `fixed`, one order of columns by
statistics (native/solvers/fixed.cpp); and `ggr`, Greedy Group Recursion (paper 000, Algorithm 1 and
§4.2; native/solvers/ggr.cpp). And running searches side by side, which end early if one is
interrupted. Loops in C++ cannot be interrupted from outside: the long ones look at a flag, an array
`stopped` of one bool. Once it is set, their results are meaningless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import NamedTuple, TypeVar

import numpy as np

from relquery import _native
from relquery.arrays import Bools, Int32s, Int64s
from relquery.reordering.items import Items

THREADS = 2
_FEW_CELLS = 1 << 12
PATIENCE = 0.1  # seconds between checks for a signal that woke another thread

R = TypeVar("R")


class StoppedError(Exception):
    """A search was stopped early, in a thread whose result is no longer needed."""


def go_on(stopped: Bools) -> None:
    """Raises StoppedError once the flag is set."""
    if stopped[0]:
        raise StoppedError


def _result(task: Future[R]) -> R:
    while not wait([task], PATIENCE).done:
        pass
    return task.result()


def side_by_side(tasks: Sequence[Callable[[], R]], stopped: Bools, cells: int) -> list[R]:
    """The results of the tasks, run THREADS at a time.

    If this thread is interrupted (Ctrl-C), the flag is set and the tasks end soon. cells: of the
    table that they go through; of few, threads would take longer to begin than the tasks.
    """
    if cells <= _FEW_CELLS:
        return [task() for task in tasks]
    with ThreadPoolExecutor(THREADS) as threads:
        running = [threads.submit(copy_context().run, task) for task in tasks]
        try:
            return [_result(each) for each in running]
        except BaseException:
            stopped[0] = True
            threads.shutdown(wait=False, cancel_futures=True)
            raise


Order = tuple[Int64s, Int32s]
"""(rows, fields by row id)."""


class Problem(NamedTuple):
    """The rows to order, as sets of items (see relquery.reordering.items); read only.

    items: (m, n), the item in each slot of each row. Without bags, slot c is column c.
    places: (m, n), the column of that item.
    bags: (m,), the same number for slots whose items are interchangeable.
    weights: (items,), what a hit on each item is worth.
    classes: (m,), slots of one class determine each other. No slot of a bag is in a class.
    implied_begin: (m + 1,), implied: slots that slot c alone determines are
        `implied[implied_begin[c]:implied_begin[c + 1]]`.
    pairs: (p, 3), two slots that together determine the third.
    stopped: (1,), set to end every search on this problem, see above.
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


class Objective(NamedTuple):
    """The objective that `tree` maximises. Rows that share a prefix form a group. Every row of it
    gains the same, except the first, which computes (and, with some providers, pays to write) the
    prefix.

    start: weight of the text before the fields of every row.

    minimum, granularity: a prefix below `minimum` is not cached; above it, whole steps of
        `granularity` are. read: saving per unit of weight read from the cache. write: extra cost
        per unit written, compared with only computing it.
    """

    start: int = 0
    minimum: int = 0
    granularity: int = 1
    read: float = 1.0
    write: float = 0.0


def is_plain(objective: Objective) -> bool:
    """Whether every shared unit is worth the same at any position."""
    return objective.minimum == 0 and objective.granularity == 1 and objective.write == 0


def original(problem: Problem) -> Order:
    """Rows and fields in the given order."""
    columns, rows = problem.items.shape
    fields = np.broadcast_to(np.arange(columns, dtype=np.int32), (rows, columns))
    return np.arange(rows, dtype=np.int64), fields


def fixed(problem: Problem) -> Order:
    """One column order for all rows, and one sort."""
    order = _native.fixed(problem)
    go_on(problem.stopped)
    return order


NO_LIMIT = 2**62


class GroupLimits(NamedTuple):
    """Early stopping of `ggr` (paper 000, §4.2.2, §6.5).

    "Row depth 4 and column depth 2, or a threshold of 0.1M" is read as follows. A step splits off
    one group. It is taken if it is within both depths, i.e. one of the first `row_depth` groups of
    a segment (L_A) and below fewer than `column_depth` groups (L_B), or if it is worth `threshold`.
    The rest of a segment falls back to its own statistics (`fixed`). The stricter reading, where
    either limit stops, loses half of the gain on tables of passages.
    """

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
