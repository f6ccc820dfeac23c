"""`tree`: the best of several searches, of `fixed` and of `original`.

There are three ways to start: choose columns and values by lookahead, one segment at a time
(native/solvers/lookahead.cpp); take groups of equal values, best first (`ggr`, without early
stopping); and insert rows one by one where they hit most (native/solvers/trie.hpp). The two best
results are then improved by moving rows, singly and in small groups, until little is gained or the
time is up. Lookahead finds what is good for a whole table; the others find what few rows share.

The time limit is converted to a number of steps before anything runs, so that the same table gives
the same schedule on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from relquery import _native
from relquery._native import Trie
from relquery.arrays import Bools, Int32s, Int64s
from relquery.reordering.items import Items, least_table
from relquery.reordering.solvers.problem import (
    NO_LIMIT,
    GroupLimits,
    Objective,
    Order,
    Problem,
    as_in_paper,
    fixed,
    ggr,
    go_on,
    is_plain,
    original,
    pose,
    side_by_side,
)

VISITS_PER_SECOND = 1.5e8  # cells of a small table that lookahead visits
STEPS_PER_SECOND = 6e7  # entries of a small trie that a search looks at
COUNTS_PER_SECOND = 3e7  # cells of a small table that `ggr` counts
LEAST_SECONDS = 0.1  # that each start gets to find its schedule, whatever the limit
LEAST_PASSES = 2  # over the table that each start always makes
FEW_SLOTS = 25  # wider rows miss the processor's caches more, up to WIDEST times
WIDEST = 8.0
CELLS_IN_CACHE = 3e6  # beyond this, memory access slows the processor down, up to SLOWEST times
SLOWEST = 4.0
MOST_STARTS = 32  # orders in which the rows of a small table are inserted
MOST_ROWS_SHUFFLED = 500  # larger tables gain next to nothing by other orders
STEPS_PER_START = 20_000  # fixed cost of a start
MOST_CELLS_INSERTED = 5e6  # a larger table is not built up row by row
LEAST_GAIN = 3e-5  # share of all weight below which another pass is not worth its time
IMPROVED = 2  # of the results of a search that are improved
LEAST_WORTH = 0.99  # of the best result, for another one to overtake it when both are improved


class Started(NamedTuple):
    """A schedule as a trie, and the steps for improving it."""

    trie: Trie
    steps: int


def tree(items: Items, problem: Problem, objective: Objective, seconds: float) -> list[Order]:
    """Schedules to choose from. Each search takes about `seconds`.

    The last ones are `fixed`, `ggr` as in paper 000, and `original`, so that the best schedule by
    any measure is no worse than these.
    """
    twins = find_twins(items)
    fewer, smaller = (items, problem) if not twins.any else _merged(items, problem, twins)
    texts = texts_of(fewer)
    searches = [_Search(fewer, texts, smaller, objective, seconds)]
    if not is_plain(objective):  # far from a threshold, only tokens show which choice leads to it
        searches.append(_Search(fewer, texts, smaller, Objective(), seconds))
    cells = items.slots.size
    starts = [partial(start, search) for search in searches for start in search.starts]
    started = iter(side_by_side(starts, problem.stopped, cells))
    ends: list[Callable[[], Order]] = []
    for search in searches:
        best = search.best([next(started) for _ in search.starts])
        ends += [partial(_expanded, partial(search.climb, each), twins) for each in best]
    ends += [partial(fixed, problem), partial(as_in_paper, problem, items)]
    ends.append(partial(original, problem))
    return side_by_side(ends, problem.stopped, cells)


def _merged(items: Items, problem: Problem, twins: Twins) -> tuple[Items, Problem]:
    """The table with each group of twins as one column."""
    fewer, first = twins.reduce(items), twins.first
    implied = np.eye(len(items.slots), dtype=np.bool_)
    begin = problem.implied_begin
    for column in range(len(implied)):
        implied[column, problem.implied[begin[column] : begin[column + 1]]] = True
    place = {column: number for number, group in enumerate(twins.members) for column in group}
    pairs = {tuple(place[column] for column in three) for three in problem.pairs.tolist()}
    kept = np.array([three for three in sorted(pairs) if len(set(three)) == 3], np.int32)
    smaller = pose(
        fewer.slots,
        fewer.bags,
        twins.weigh(items, problem.weights),
        implied[np.ix_(first, first)],
        kept.reshape(-1, 3),
    )
    return fewer, smaller._replace(stopped=problem.stopped)


def _expanded(find: Callable[[], Order], twins: Twins) -> Order:
    rows, fields = find()
    return rows, twins.expand(fields) if twins.any else fields


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """The ways to search, each in `seconds`."""

    items: Items
    texts: Texts
    problem: Problem
    objective: Objective
    seconds: float

    @property
    def starts(self) -> tuple[Callable[[_Search], Started], ...]:
        """The ways to start, longest-running first."""
        if self.problem.items.size > MOST_CELLS_INSERTED:
            return _Search.from_lookahead, _Search.from_groups
        return _Search.from_lookahead, _Search.from_groups, _Search.from_rows

    @property
    def is_small(self) -> bool:
        """Whether there is time for all of it."""
        return bool(self.problem.items.shape[1] <= MOST_ROWS_SHUFFLED)

    def best(self, started: Sequence[Started]) -> list[Started]:
        """Those that are improved: all for a small table, else those worth about the most."""
        if self.is_small:
            return list(started)
        worth = {id(each): each.trie.worth() for each in started}
        best_first = sorted(started, key=lambda each: -worth[id(each)])[:IMPROVED]
        return [
            each for each in best_first if worth[id(each)] >= LEAST_WORTH * worth[id(best_first[0])]
        ]

    def from_lookahead(self) -> Started:
        """Columns and values by lookahead, which gets a quarter of the time."""
        reach = reach_within(self.problem, self._count(VISITS_PER_SECOND) / 4)
        reach = reach._replace(visits=self._count_to_start(VISITS_PER_SECOND))
        trie = self._new()
        trie.plant(*look_ahead(self.problem, self.objective, reach))
        return Started(trie, self._count(STEPS_PER_SECOND) // 2)

    def from_groups(self) -> Started:
        """Algorithm 1 of paper 000, without early stopping."""
        most = self._count_to_start(COUNTS_PER_SECOND)
        order, fields = ggr(self.problem, GroupLimits(NO_LIMIT, NO_LIMIT, 0), most)
        slot_of = np.argsort(self.problem.places, axis=0).astype(np.int32)
        slots = slot_of[fields, np.arange(len(fields))[:, None]]
        trie = self._new()
        trie.plant(order, slots, self.problem.items)
        return Started(trie, self._count(STEPS_PER_SECOND))

    def from_rows(self) -> Started:
        """Rows inserted in their order. Of a small table in random orders, too, each improved while
        steps are left."""
        shuffle = np.random.default_rng(0)
        order = np.arange(self.problem.items.shape[1])
        steps = self._count(STEPS_PER_SECOND)
        improved = [self._inserted(order, steps)]
        while self.is_small and steps > 0 and len(improved) <= MOST_STARTS:
            self._improve(improved[-1])
            steps -= improved[-1].trie.steps + STEPS_PER_START
            order = shuffle.permutation(order)
            improved.append(self._inserted(order, steps))
        return max(improved, key=lambda each: each.trie.worth())

    def _inserted(self, order: Int64s, steps: int) -> Started:
        trie = self._new()
        trie.insert_all(order, self._count_to_start(STEPS_PER_SECOND / 2))
        return Started(trie, steps)

    def climb(self, started: Started) -> Order:
        """The schedule, improved."""
        self._improve(started)
        return arrange(started.trie, self.texts, self.items.slots, self.problem.stopped)

    def _count(self, per_second: float) -> int:
        slots, rows = self.problem.items.shape
        slower = min(1 + slots * rows / CELLS_IN_CACHE, SLOWEST)
        slower *= min(max(slots / FEW_SLOTS, 1.0), WIDEST)
        return int(self.seconds * per_second / slower)

    def _count_to_start(self, per_second: float) -> int:
        """The number of steps a start may take before it finishes in the quickest way."""
        least = max(LEAST_SECONDS * per_second, LEAST_PASSES * self.problem.items.size)
        return int(max(self._count(per_second), least))

    def _new(self) -> Trie:
        return Trie(self.problem.items, self.problem.weights, self.problem.stopped)

    def _improve(self, started: Started) -> None:
        """Move rows, one by one and in small groups, until little is gained or the time is up."""
        (trie, steps), problem = started, self.problem
        least = LEAST_GAIN * float(problem.weights[problem.items].sum())
        stop = trie.steps + steps
        gained = least + 1
        while gained > least and trie.steps < stop:
            go_on(problem.stopped)
            gained = trie.break_groups(stop - trie.steps)
            gained += trie.move_rows(stop - trie.steps)


class Texts(NamedTuple):
    """Facts about the texts that `arrange` needs.

    rank, shared: see Items. least: of `shared`, see `least_table`.

    column: (items,), a number per column or bag.
    """

    rank: Int32s
    shared: Int64s
    least: Int64s
    column: Int32s


def texts_of(items: Items) -> Texts:
    column = np.zeros(len(items.rank), np.int32)
    for slot, bag in zip(items.slots, items.bags, strict=True):
        column[slot] = bag
    return Texts(items.rank, items.shared, least_table(items.shared), column)


def arrange(trie: Trie, texts: Texts, items: Int32s, stopped: Bools) -> Order:
    """The order that a trie of item sets gives. Reorders the labels of the trie. items: (m, n)."""
    order = trie.arrange(*texts, items)
    go_on(stopped)
    return order


class Reach(NamedTuple):
    """The depth of the search: try `first` columns for a segment, and below each the `width`
    columns that gain the most, `depth` columns deep. After `visits` cells, only the gain
    decides."""

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
    result = _native.look_ahead(problem, objective, reach)
    go_on(problem.stopped)
    return result


_FEW = 64  # rows


@dataclass(frozen=True, slots=True, eq=False)
class Twins:
    """Columns that determine each other in all rows, which a search can order as one.

    Values are numbered in the order of first appearance, so two columns determine each other
    exactly if their codes are equal. Rows that share one of the values share the others, so the
    columns belong side by side (paper 000, §4.2.1), and a search over fewer columns takes less
    time. Every row is compared, so nothing depends on what was declared.

    members: per group, its columns as they are sent; the first stands for them all."""

    members: tuple[tuple[int, ...], ...]

    @property
    def any(self) -> bool:
        """Whether a group has several columns."""
        return any(len(group) > 1 for group in self.members)

    @property
    def first(self) -> Int64s:
        """(groups,), the first column of each group."""
        return np.array([group[0] for group in self.members], np.int64)

    def reduce(self, items: Items) -> Items:
        """Only the first column of each group. Items are numbered as before."""
        _, bags = np.unique(items.bags[self.first], return_inverse=True)
        first_of = np.unique(bags, return_index=True)[1]
        return replace(
            items,
            slots=np.ascontiguousarray(items.slots[self.first]),
            bags=first_of[bags].astype(np.int32),
        )

    def weigh(self, items: Items, weights: Int64s) -> Int64s:
        """(items,), with the weights of its twins added to each item of a first column."""
        summed = weights.copy()
        for first, *others in self.members:
            size = int(items.slots[first].max()) + 1 - int(items.slots[first].min())
            for other in others:
                start, twin = int(items.slots[first].min()), int(items.slots[other].min())
                summed[start : start + size] += weights[twin : twin + size]
        return summed

    def expand(self, fields: Int32s) -> Int32s:
        """Orders of all columns (n, columns) from orders of groups (n, groups)."""
        table = np.full((len(self.members), max(map(len, self.members))), -1, np.int32)
        for number, group in enumerate(self.members):
            table[number, : len(group)] = group
        members = table[fields].reshape(len(fields), -1)
        expanded: Int32s = members[members >= 0].reshape(len(fields), -1)
        return expanded


def find_twins(items: Items) -> Twins:
    """The columns of a table with at least one row in groups. Columns of a bag stay alone.

    The first of a group is the one whose values begin most alike: a row that differs in the group
    still shares the beginning of its first value with the row before.
    """
    groups: list[list[int]] = []
    for column in range(len(items.slots)):
        for group in groups:
            if not (items.in_bag(column) or items.in_bag(group[0])) and _are_twins(
                items.slots[column], items.slots[group[0]]
            ):
                group.append(column)
                break
        else:
            groups.append([column])
    return Twins(tuple(_most_alike_first(items, group) for group in groups))


def _are_twins(one: Int32s, other: Int32s) -> bool:
    """Whether the codes of two columns are equal. Most that are not differ in the first rows."""
    apart = int(other[0]) - int(one[0])
    few = slice(0, _FEW)
    return bool((other[few] - one[few] == apart).all() and (other - one == apart).all())


def _most_alike_first(items: Items, group: list[int]) -> tuple[int, ...]:
    def alike(column: int) -> int:
        slots = items.slots[column]
        ranks = items.rank[int(slots.min()) : int(slots.max()) + 1]
        return int(items.shared[ranks].sum())

    if len(group) == 1:
        return tuple(group)
    first = max(group, key=alike)
    return (first, *(column for column in group if column != first))
