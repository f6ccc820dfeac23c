"""Runs the filters of one SELECT: on some of the rows first, to learn which filter drops the most
for what it costs, and, before a LIMIT, only until enough rows have passed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from relquery.arrays import Int64s
from relquery.sql.executor.choices import SAMPLE, SEED, Seen, rank, rows_to_limit, rows_to_order
from relquery.sql.executor.costs import cost_of
from relquery.sql.executor.rows import Rows
from relquery.sql.planner.plan import Filter, Part


def run_filters(rows: Rows, ask: Callable[[Part, Int64s], None]) -> bool:
    """Leave the rows for which all filters are true. ask: makes the calls of a part for some rows.

    Returns whether they are cut: those after a limit are dropped, without asking about all.
    """
    plan = rows.plan
    if not plan.filters:
        return False
    run = _Run(rows, ask, {id(one): Seen() for one in plan.filters})
    if len(plan.filters) == 1 and plan.cut is None and not plan.outputs.calls:
        (last,) = plan.filters
        ask(last.part, rows.alive)
        if rows.leave(last.predicate):
            return False
    limit = _limit(rows) if len(rows.alive) else None
    groups = _groups(rows) if limit is None and len(rows.alive) else None
    if groups is not None:
        rows.alive = np.sort(run.until_each(*groups))
    elif limit is None:
        rows.alive = np.sort(run.all(_shuffled(rows)))
    else:
        sequence, kept = limit
        rows.alive = np.sort(run.until(sequence, kept.stop)[kept])
    return limit is not None


@dataclass(slots=True)
class _Run:
    """seen: by filter, what it has shown. whole: the same for all filters together."""

    rows: Rows
    ask: Callable[[Part, Int64s], None]
    seen: dict[int, Seen]
    whole: Seen = field(default_factory=Seen)

    def all(self, waiting: Int64s) -> Int64s:
        """Those of all rows that pass."""
        if not self.rows.learns or not len(waiting):  # a stage has its number without rows, too
            return self._try(waiting, len(waiting))
        passed = []
        while len(waiting):
            size = rows_to_order(self.whole.tried) if len(self.seen) > 1 else len(waiting)
            passed.append(self._try(waiting, size))
            waiting = waiting[size:]
        return np.concatenate(passed) if passed else waiting

    def until(self, waiting: Int64s, enough: int) -> Int64s:
        """The first `enough` rows that pass, and perhaps some more, in the order given."""
        passed = [waiting[:0]]
        while len(waiting) and (missing := enough - self.whole.passed) > 0:
            size = rows_to_limit(missing, self.whole)
            found = self._try(waiting, size)
            passed.append(waiting[:size][np.isin(waiting[:size], found)])
            waiting = waiting[size:]
        return np.concatenate(passed)

    def until_each(self, waiting: Int64s, groups: Int64s) -> Int64s:
        """The first rows of each group that pass, in the order given. groups: of all base rows."""
        passed = [waiting[:0]]
        while len(waiting):
            size = rows_to_limit(1, self.whole)
            by_group = groups[waiting].argsort(kind="stable")
            starts = np.flatnonzero(np.diff(groups[waiting][by_group], prepend=-1))
            sizes = np.diff(starts, append=len(waiting))
            place = np.arange(len(waiting)) - np.repeat(starts, sizes)
            is_next = np.zeros(len(waiting), np.bool_)
            is_next[by_group[place < size]] = True
            tried, waiting = waiting[is_next], waiting[~is_next]
            passed.append(self._try(tried, len(tried)))
            waiting = waiting[~np.isin(groups[waiting], groups[passed[-1]])]
        return np.concatenate(passed)

    def _try(self, waiting: Int64s, size: int) -> Int64s:
        """The rows that pass, of the next so many."""
        batch = left = np.sort(waiting[:size])
        for one in self._in_order(waiting):
            self.ask(one.part, left)
            tried, left = len(left), self.rows.passing(one.predicate, left)
            self.seen[id(one)] = self.seen[id(one)].plus(tried, len(left))
        self.whole = self.whole.plus(len(batch), len(left))
        return left

    def _in_order(self, waiting: Int64s) -> list[Filter]:
        filters = list(self.rows.plan.filters)
        if len(filters) < 2:
            return filters

        def key(one: Filter) -> float:
            seen = self.seen[id(one)]
            return rank(cost_of(one.part, self.rows, waiting, seen.tried), seen)

        return sorted(filters, key=key)


def _groups(rows: Rows) -> tuple[Int64s, Int64s] | None:
    """All rows in the order of DISTINCT ON, and the group of each; None if a SELECT has none."""
    cut = rows.plan.cut
    if cut is None or not cut.stops or cut.select.distinct is None or not rows.learns:
        return None
    sequence, groups = rows.sequence(cut.select), rows.groups(cut.select)
    return None if sequence is None or groups is None else (sequence, groups)


def _limit(rows: Rows) -> tuple[Int64s, slice] | None:
    """All rows in the order in which the SELECT returns them, and which of those that pass it does.

    None if filters cannot stop early.
    """
    cut = rows.plan.cut
    if cut is None or not cut.stops or cut.select.distinct is not None or not rows.learns:
        return None
    kept = rows.window(cut.select, rows.count)
    sequence = None if kept is None else rows.sequence(cut.select)
    return None if kept is None or sequence is None else (sequence, kept)


def _shuffled(rows: Rows) -> Int64s:
    """All rows, in random order if the first ones are to speak for the others."""
    if len(rows.plan.filters) < 2 or len(rows.alive) <= SAMPLE:
        return rows.alive
    return np.random.default_rng(SEED).permutation(rows.alive)
