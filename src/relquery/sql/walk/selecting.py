"""Goes through the stages of one SELECT: its filters, what cuts its rows, and its other calls."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from relquery.sql.plan.planner import SelectPlan
from relquery.sql.read.scopes import Context
from relquery.sql.walk.filtering import run_filters
from relquery.sql.walk.stages import Asking, R, Stages

S = TypeVar("S")


class Selects(Protocol[S]):
    """What to do with the SELECTs of a statement that have calls, the inner ones first."""

    def select(self, plan: SelectPlan, context: Context, kinds: Counter[str]) -> S:
        """The rows of a SELECT, its calls answered. kinds: of the statement's stages so far."""

    def table(self, rows: S) -> str:
        """The name of a scratch table with the rows of a SELECT whose stages are done."""

    def final(self, rows: S) -> str:
        """The statement for the rows of the outermost SELECT, once its stages are done."""


@dataclass(frozen=True, slots=True)
class InStages(Generic[R]):
    """SELECTs on this machine, stage by stage."""

    stages: Stages[R]

    def select(self, plan: SelectPlan, context: Context, kinds: Counter[str]) -> R:
        """See Selects."""
        rows = self.stages.rows(plan, context)
        asking = Asking(rows, self.stages, kinds)
        is_cut = run_filters(rows, lambda part, among: asking.ask(part, among, "filter"))
        if plan.cut is not None and not is_cut:
            asking.ask(plan.cut.part, rows.alive, plan.kind)
            self.stages.cut(rows)
        asking.ask(plan.outputs, rows.alive, plan.kind)
        return rows

    def table(self, rows: R) -> str:
        """See Selects."""
        return self.stages.table(rows)

    def final(self, rows: R) -> str:
        """See Selects."""
        return self.stages.final(rows)
