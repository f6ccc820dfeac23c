"""The walk through the stages of a SELECT, for some of its rows, to run or to predict them.

Filters run on some of the rows first, to learn which filter drops the most for what it costs, and,
before a LIMIT, only until enough rows have passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from relquery.arrays import Int64s
from relquery.errors import PendingError
from relquery.sql.executor.choices import (
    FIRST,
    SAMPLE,
    SEED,
    Judged,
    Seen,
    rank,
    rows_to_limit,
    rows_to_order,
)
from relquery.sql.executor.order import CallCosts, Costs, cost_of, has_sides, steps_of
from relquery.sql.executor.rows import Rows
from relquery.sql.parser.tree import Expression
from relquery.sql.planner.checks import Check
from relquery.sql.planner.plan import CallGroup, PlannedCall

R = TypeVar("R", bound=Rows)


@dataclass(slots=True)
class StageWalker(Generic[R]):
    """A walker through the stages of one SELECT: its filters, what cuts its rows, and its other
    calls.

    ask: deals with one call for some base rows, and marks them as asked. One stage may ask several
    times, for other rows; its last argument is what holds in all of them. kinds: how many stages of
    each kind there are in the statement so far. check: deals with answers of some rows that are not
    valid values, once their calls are answered. costs: of some rows; None for calls as written.

    The rows say how the walk goes on: which pass a filter, and whether this is known so soon that
    filters can run on a few rows at a time (Rows.passing, Rows.learns).
    """

    rows: R
    ask: Callable[[str, PlannedCall, R, Int64s, Expression | None], None]
    kinds: Counter[str]
    check: Callable[[str, tuple[Check, ...], R, Int64s], None] = lambda *stage: None
    costs: Callable[[Rows, Int64s], Costs] | None = CallCosts
    _names: dict[tuple[int, int], str] = field(default_factory=dict)
    _last: dict[int, str] = field(default_factory=dict)

    def run(self) -> None:
        """Go through the stages for the rows that are alive."""
        rows, plan = self.rows, self.rows.plan
        is_cut = run_filters(rows, lambda part, among: self._ask(part, among, "filter"))
        if plan.cut is not None and not is_cut:
            self._ask(plan.cut.part, rows.alive, plan.kind)
            rows.cut()
        self._ask(plan.outputs, rows.alive, plan.kind)

    def _ask(self, part: CallGroup, among: Int64s, kind: str) -> None:
        """Ask the calls of a part for those of some rows that need them."""
        if has_sides(part) and self.rows.learns_early and len(among) > SAMPLE:
            # A part of the rows shows which side of an AND or OR to ask first.
            shuffled = np.random.default_rng(SEED).permutation(among)
            self._ask_at_once(part, np.sort(shuffled[:SAMPLE]), kind)
            among = np.sort(shuffled[SAMPLE:])
        self._ask_at_once(part, among, kind)

    def _ask_at_once(self, part: CallGroup, among: Int64s, kind: str) -> None:
        rows, calls, inner = self.rows, self.rows.plan.calls, self.rows.plan.inner
        pending: list[PendingError] = []
        costs = None if self.costs is None else self.costs(rows, among)
        for step in steps_of(part, inner, costs):
            call = calls[step.call]
            if pending and (step.where is not None or inner[step.call]):
                continue  # whom it asks may depend on answers that are not there yet
            wanted = among if step.where is None else rows.matching(step.where, among)
            wanted = wanted[~rows.of_call(step.call).asked[wanted]]
            # Rows with an unknown input are not worth asking about.
            wanted = rows.determined(call, wanted)
            if len(wanted) or step.call not in self._last:
                name = self._last[step.call] = self._name(part, step.call, kind)
                try:
                    self.ask(name, call, rows, wanted, step.where)
                except PendingError as error:  # other calls are submitted meanwhile
                    pending.append(error)
            if step.checks and not pending:
                self.check(self._last[step.call], step.checks, rows, among)
        if pending:
            raise PendingError.of(pending)

    def _name(self, part: CallGroup, call: int, kind: str) -> str:
        """The name of a stage: the same for all rows that one part asks."""
        if (id(part), call) not in self._names:
            self.kinds[kind] += 1
            self._names[id(part), call] = f"{kind} {self.kinds[kind]}"
        return self._names[id(part), call]


def run_filters(rows: Rows, ask: Callable[[CallGroup, Int64s], None]) -> bool:
    """Leave the rows for which all filters are true. ask: makes the calls of a part for some rows.

    Returns whether they are cut: those after a limit are dropped, without asking about all.
    """
    plan = rows.plan
    if not plan.filters:
        return False
    run = _Run(rows, ask, [Judged() for _ in plan.filters])
    if (
        rows.defers_filter
        and len(plan.filters) == 1
        and plan.cut is None
        and not plan.outputs.calls
    ):
        (last,) = plan.filters
        ask(last.part, rows.alive)
        rows.where = last.predicate
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
    """The filters of a SELECT while they run. shown: what each has shown, by its place. whole: what
    all of them together have."""

    rows: Rows
    ask: Callable[[CallGroup, Int64s], None]
    shown: list[Judged]
    whole: Seen = field(default_factory=Seen)

    def all(self, waiting: Int64s) -> Int64s:
        """Those of all rows that pass."""
        if not self.rows.learns_early or not len(waiting):  # it has its number without rows, too
            return self._try(waiting, len(waiting))
        passed = []
        while len(waiting):
            size = rows_to_order(self.whole.tried) if len(self.shown) > 1 else len(waiting)
            passed.append(self._try(waiting, size))
            waiting = waiting[size:]
        return np.concatenate(passed) if passed else waiting

    def until(self, waiting: Int64s, enough: int) -> Int64s:
        """The first `enough` rows that pass, and perhaps some more, in the order given."""
        passed = [waiting[:0]]
        while len(waiting) and (missing := enough - self.whole.passed) > 0:
            size = rows_to_limit(missing, self.whole)
            passed_rows = self._try(waiting, size)
            passed.append(waiting[:size][np.isin(waiting[:size], passed_rows)])
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
        """The rows that pass, of the next so many: each filter runs on those that the filters
        before it have passed, and the next is the one that costs the least for each row it drops.
        """
        passed, before = np.sort(waiting[:size]), frozenset[int]()
        tried, filters, costs = len(passed), self.rows.plan.filters, [0.0] * len(self.shown)
        if len(filters) > 1:
            costs = [
                cost_of(filter_.part, self.rows, waiting, shown.tried)
                for filter_, shown in zip(filters, self.shown, strict=True)
            ]
        while left := [index for index in range(len(filters)) if index not in before]:
            ranks = {
                index: rank(costs[index], self.shown[index].selectivity(before)) for index in left
            }
            best = min(left, key=ranks.__getitem__)
            self.ask(filters[best].part, passed)
            passed_rows = self.rows.passing(best, passed)
            self.shown[best].add(before, len(passed), len(passed_rows))
            passed, before = passed_rows, before | {best}
        self.whole = self.whole.plus(tried, len(passed))
        return passed


def _groups(rows: Rows) -> tuple[Int64s, Int64s] | None:
    """All rows in the order of DISTINCT ON, and the group of each; None if a SELECT has none."""
    cut = rows.plan.cut
    if cut is None or not cut.stops or cut.select.distinct is None or not rows.learns_early:
        return None
    sequence, groups = rows.sequence(cut.select), rows.groups(cut.select)
    return None if sequence is None or groups is None else (sequence, groups)


def _limit(rows: Rows) -> tuple[Int64s, slice] | None:
    """All rows in the order in which the SELECT returns them, and which of those that pass it does.

    None if filters cannot stop early.
    """
    cut = rows.plan.cut
    if cut is None or not cut.stops or not rows.learns_early or cut.select.distinct is not None:
        return None
    kept = rows.window(cut.select, rows.count)
    sequence = None if kept is None else rows.sequence(cut.select)
    return None if kept is None or sequence is None else (sequence, kept)


def _shuffled(rows: Rows) -> Int64s:
    """All rows, in random order if the first ones are to speak for the others."""
    if len(rows.plan.filters) < 2 or len(rows.alive) <= FIRST:
        return rows.alive
    return np.random.default_rng(SEED).permutation(rows.alive)
