"""`tree`: the best of several searches, and never worse than `fixed`.

Three ways to begin: columns chosen by lookahead, a segment at a time (lookahead.py); groups of
equal values, the best first (ggr.py, without its early stopping); and rows inserted one by one
where they hit most (trie.py). Each is then improved by moving single rows until nothing gains or
the time is up. Lookahead sees that a column is good for a whole table; the others see what few rows
share, in wide tables and in bags of passages.

The time allowed turns into a number of steps before anything runs, so that the same table gives
the same schedule on every machine.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from relquery.table.columns import Int32s, Int64s
from relquery.table.items import Items
from relquery.table.solvers.arrange import Texts, arrange, texts_of
from relquery.table.solvers.fixed import fixed
from relquery.table.solvers.ggr import NO_LIMIT, Limits, ggr
from relquery.table.solvers.lookahead import columns_by_lookahead, reach_within
from relquery.table.solvers.objective import Objective, total_worth
from relquery.table.solvers.segment import Problem
from relquery.table.solvers.trie import Search, Trie, improve, new_search, new_trie, plant

THREADS = 2
VISITS_PER_SECOND = 1.5e8  # cells that lookahead visits
COMPARISONS_PER_SECOND = 6e7  # items that a search in the trie compares
FEWEST_MOVES = 1e-4  # moves per row below which another pass is not worth its time


class Schedule(NamedTuple):
    """rows: (n,). fields: (n, m), columns by row id."""

    rows: Int64s
    fields: Int32s


def tree(items: Items, problem: Problem, objective: Objective, seconds: float) -> list[Schedule]:
    """Schedules found in about that many seconds for each search, those worth most first.

    None is below `fixed` for the same weights.
    """
    texts = texts_of(items)
    found = _search(items, texts, problem, objective, seconds)
    if not objective.is_plain:  # far from a threshold only tokens can tell what leads there
        found += _search(items, texts, problem, Objective(), seconds)
    floor = Schedule(*fixed(problem))

    def value(schedule: Schedule) -> float:
        return _worth(items, problem, objective, schedule)

    least = value(floor)
    good = [schedule for schedule in found if value(schedule) >= least]
    return sorted([*good, floor], key=value, reverse=True)


def _search(
    items: Items, texts: Texts, problem: Problem, objective: Objective, seconds: float
) -> list[Schedule]:
    starts = (_from_columns, _from_groups, _from_rows)
    with ThreadPoolExecutor(THREADS) as threads:  # compiled code runs side by side
        searches = [
            threads.submit(start, items, texts, problem, objective, seconds) for start in starts
        ]
        return [search.result() for search in searches]


def _from_columns(
    items: Items, texts: Texts, problem: Problem, objective: Objective, seconds: float
) -> Schedule:
    """Half of the time goes into looking ahead."""
    reach = reach_within(problem, seconds / 2 * VISITS_PER_SECOND)
    order, slots = columns_by_lookahead(problem, objective, reach)
    trie, search = new_trie(problem.items), new_search(problem.items, problem.weights)
    plant(trie, search, problem.items, order, slots)
    _climb(trie, search, problem.items, seconds / 2)
    return Schedule(*arrange(trie, texts, items.slots))


def _from_rows(
    items: Items, texts: Texts, problem: Problem, objective: Objective, seconds: float
) -> Schedule:
    del objective  # what a row hits is the same to all of them, but for thresholds
    trie, search = new_trie(problem.items), new_search(problem.items, problem.weights)
    _climb(trie, search, problem.items, seconds)
    return Schedule(*arrange(trie, texts, items.slots))


def _from_groups(
    items: Items, texts: Texts, problem: Problem, objective: Objective, seconds: float
) -> Schedule:
    del objective
    places = np.argsort(problem.places, axis=0).astype(np.int32)  # slot of each column, per row
    order, fields = ggr(problem, Limits(NO_LIMIT, NO_LIMIT, 0))
    slots = places[fields, np.arange(len(fields))[:, None]]
    trie, search = new_trie(problem.items), new_search(problem.items, problem.weights)
    plant(trie, search, problem.items, order, slots)
    _climb(trie, search, problem.items, seconds)
    return Schedule(*arrange(trie, texts, items.slots))


def _climb(trie: Trie, search: Search, items: Int32s, seconds: float) -> None:
    most = int(seconds * COMPARISONS_PER_SECOND)
    rows = items.shape[1]
    while True:
        moves = improve(trie, search, items, most - int(search.counters[1]))
        if moves <= FEWEST_MOVES * rows or search.counters[1] >= most:
            return


def _worth(items: Items, problem: Problem, objective: Objective, schedule: Schedule) -> float:
    fields = np.ascontiguousarray(schedule.fields[schedule.rows])
    same = items.same[items.slots]
    return total_worth(objective, problem.weights, same, schedule.rows, fields)
