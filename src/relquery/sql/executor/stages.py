"""Goes through the calls of a SELECT, for some of its rows, to run them or to predict them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from relquery.arrays import Int64s
from relquery.errors import PendingError
from relquery.sql.executor.choices import SAMPLE, SEED
from relquery.sql.executor.costs import CallCosts
from relquery.sql.executor.filtering import run_filters
from relquery.sql.executor.rows import Rows
from relquery.sql.parser.tree import Expression
from relquery.sql.planner.asking import Costs, has_sides, steps_of
from relquery.sql.planner.checks import Check
from relquery.sql.planner.plan import Part, PlannedCall

R = TypeVar("R", bound=Rows)


@dataclass(slots=True)
class StageWalker(Generic[R]):
    """Goes through the stages of one SELECT: its filters, what cuts its rows, and its other calls.

    ask: deals with one call for some base rows, and marks them as asked. One stage may ask several
    times, for other rows; its last argument is what holds in all of them. kinds: how many stages of
    each kind there are in the statement so far. check: deals with answers of some rows that are not
    valid values, once their calls are answered. costs: of some rows.

    The rows say how the walk goes on: which pass a filter, and whether this is known so soon that
    filters can run on a few rows at a time (Rows.passing, Rows.learns).
    """

    rows: R
    ask: Callable[[str, PlannedCall, R, Int64s, Expression | None], None]
    kinds: Counter[str]
    check: Callable[[str, tuple[Check, ...], R, Int64s], None] = lambda *stage: None
    costs: Callable[[Rows, Int64s], Costs] = CallCosts
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

    def _ask(self, part: Part, among: Int64s, kind: str) -> None:
        """Ask the calls of a part for those of some rows that need them."""
        if has_sides(part) and self.rows.learns and len(among) > SAMPLE:
            # A part of the rows shows which side of an AND or OR to ask first.
            shuffled = np.random.default_rng(SEED).permutation(among)
            self._ask_at_once(part, np.sort(shuffled[:SAMPLE]), kind)
            among = np.sort(shuffled[SAMPLE:])
        self._ask_at_once(part, among, kind)

    def _ask_at_once(self, part: Part, among: Int64s, kind: str) -> None:
        rows, calls = self.rows, self.rows.plan.calls
        inner = {call.index: frozenset(need.call for need in call.needs) for call in calls}
        pending: list[PendingError] = []
        for step in steps_of(part, inner, self.costs(rows, among)):
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

    def _name(self, part: Part, call: int, kind: str) -> str:
        """The name of a stage: the same for all rows that one part asks."""
        if (id(part), call) not in self._names:
            self.kinds[kind] += 1
            self._names[id(part), call] = f"{kind} {self.kinds[kind]}"
        return self._names[id(part), call]
