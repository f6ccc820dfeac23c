"""The rows of one SELECT while it is explained: all rows that its filters might keep."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from sqlglot import exp

from relquery.arrays import Int64s
from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.execute.rows import Rows
from relquery.sql.explain.bounds import ALL, Known, known_base
from relquery.sql.host.database import Database, Scratch
from relquery.sql.inputs.inputs import distinct_rows
from relquery.sql.plan.asking import has_sides
from relquery.sql.plan.fields import Field
from relquery.sql.plan.planner import PlannedCall, SelectPlan
from relquery.sql.read.scopes import Context
from relquery.sql.read.source import to_sql
from relquery.sql.walk.choices import SAMPLE
from relquery.table.columns import encode


@dataclass(slots=True)
class ForeseenRows(Rows):
    """Base rows of a plan whose calls are not answered.

    known: what is known about the rows that are alive. inputs: by call, an array (rows,) with one
    number per row; rows whose inputs may differ have different numbers. 0 for rows not asked.
    """

    known: Known = ALL
    inputs: dict[int, Int64s] = field(default_factory=dict)

    @classmethod
    def foresee(
        cls,
        plan: SelectPlan,
        context: Context,
        database: Database,
        scratch: Scratch,
        stand_ins: dict[str, Known],
    ) -> ForeseenRows:
        """Run the base query as far as its rows are known."""
        known = known_base(plan.base, context, stand_ins)
        try:
            rows = cls.of(plan if known.held else _emptied(plan), context, database, scratch)
        except QueryError:
            if known == ALL:  # the run would fail too
                raise
            # The cause may be rows that a filter would drop, or NULL for an answer.
            known = replace(known, exact=False, held=False)
            rows = cls.of(_emptied(plan), context, database, scratch)
        assert isinstance(rows, ForeseenRows)
        rows.known = replace(known, most=rows.count) if known.held else known
        return rows

    def matching(self, predicate: exp.Expr, rows: Int64s | None = None) -> Int64s:
        """The matching rows; all rows if the predicate depends on answers.

        Raises QueryError for a predicate that DuckDB cannot run.
        """
        if not self.is_open(predicate):
            return Rows.matching(self, predicate, rows)
        read = f"SELECT {to_sql(predicate)} FROM {ours.ROWS}"
        self.database.describe(self.sql(read, self.alive[:0]))
        return self.alive if rows is None else rows

    @property
    def learns(self) -> bool:
        """No: so a filter runs once, for all rows that may reach it."""
        return False

    def passing(self, predicate: exp.Expr, rows: Int64s) -> Int64s:
        """All rows, since the filter may keep any of them."""
        self.matching(predicate, rows)
        self.known = replace(self.known, exact=False)
        return rows

    @property
    def may_stop(self) -> bool:
        """Whether the first call may be asked for some of its rows only: a limit may be reached, or
        the answers may show that it is better to ask another one first.
        """
        plan = self.plan
        stops = plan.cut is not None and plan.cut.stops and bool(plan.filters)
        learns = len(plan.filters) > 1 or any(map(has_sides, plan.parts))
        return stops or (learns and len(self.alive) > SAMPLE)

    def at_most(self, count: int) -> int:
        """A number of rows or inputs, no more than there can be rows."""
        return count if self.known.most is None else min(count, self.known.most)

    def cut(self) -> None:
        """Drop the rows that the SELECT does not return, if this is known; else count them."""
        assert self.plan.cut is not None
        select = self.plan.cut.select
        if self.known.exact and self.known.held and not self.is_open(select):
            Rows.cut(self)
            self.known = replace(self.known, most=len(self.alive))
            return
        self.database.describe(self.sql(to_sql(select), self.alive[:0]))
        kept = self.window(select)
        most = self.known.most
        if kept is not None and most is not None:
            most = min(most, kept.stop - kept.start)
        self.known = replace(self.known, most=most, exact=False)

    def is_open(self, node: exp.Expr) -> bool:
        """Whether an expression over ours.ROWS depends on answers."""
        return any(self.known.is_open_column(name.name) for name in node.find_all(exp.Identifier))

    def number_inputs(self, call: PlannedCall, wanted: Int64s) -> int:
        """Number the inputs of a call that may differ. Returns the maximum number of inputs."""
        columns = [codes for part in call.fields for codes in self._codes(part, wanted)]
        codes = np.stack(columns, axis=1) if columns else np.zeros((len(wanted), 0), np.int64)
        first, of_row = distinct_rows(codes)
        self.note_inputs(call, wanted, of_row)
        return len(first)

    def note_inputs(self, call: PlannedCall, wanted: Int64s, of_row: Int64s) -> None:
        """Note which input of a call each row has."""
        numbers = self.inputs.setdefault(call.index, np.zeros(self.count, np.int64))
        numbers[wanted] = of_row

    def _codes(self, part: Field, wanted: Int64s) -> list[Int64s]:
        """Numbers for a field's values; values that may differ get different numbers."""
        whole = part.value.name if isinstance(part.value, exp.Column) else ""
        answer = ours.call_of(whole)
        if answer in self.inputs:
            return [self.inputs[answer][wanted]]  # equal inputs have equal answers
        if self.is_open(part.value):
            return [np.arange(len(wanted), dtype=np.int64)]
        cells = self.cells((part,), wanted)
        return [encode(cells.fetch()).codes.reshape(len(wanted)).astype(np.int64)]


def _emptied(plan: SelectPlan) -> SelectPlan:
    return replace(plan, base=exp.select("*").from_(plan.base.subquery(ours.BASE)).where("false"))
