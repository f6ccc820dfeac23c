"""Runs a plan on stand-ins for answers before its first call.

Nobody pays for a statement that is bound to fail. With NULL for every answer DuckDB runs all that
answers do not decide. If that fails, it may be due to the NULLs: so the statement is wrong only if
it also fails with another stand-in, a valid value of each type.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from relquery.arrays import Int64s
from relquery.errors import QueryError
from relquery.prompt import Compared
from relquery.sql.binder.task import Task
from relquery.sql.executor.constraints import check_insert
from relquery.sql.executor.costs import EqualCosts
from relquery.sql.executor.rows import Rows
from relquery.sql.executor.stages import run_select
from relquery.sql.host.database import Database, Scratch
from relquery.sql.host.errors import is_aborted
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Expression, Node, Table
from relquery.sql.planner.checks import Check
from relquery.sql.planner.plan import PlannedCall, SelectPlan
from relquery.sql.planner.statement import Plan
from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import ListOf, Shape, StructOf


def dry_run(plan: Plan, database: Database, scratch: Scratch) -> dict[int, Rows]:
    """Run a plan on stand-ins. Raises QueryError if it is bound to fail.

    Returns base rows that do not depend on answers, by the place of their SELECT.
    """
    first = DryRun(database, scratch)
    try:
        first.run(plan)
    except QueryError as reason:
        if not first.depends:
            raise
        second = DryRun(database, scratch, valid=True)
        try:
            second.run(plan)
        except QueryError as error:
            raise (reason if is_aborted(error) else error) from None
    return {at: rows.again() for at, rows in first.kept.items()}


@dataclass(slots=True)
class DryRun:
    """Stages that make no calls. valid: whether valid values stand in for answers, and not NULL.

    kept: base rows that do not depend on answers. depends: whether answers may decide what is
    computed now.
    """

    database: Database
    scratch: Scratch
    valid: bool = False
    kept: dict[int, Rows] = field(default_factory=dict)
    depends: bool = False

    def run(self, plan: Plan) -> None:
        """Go through all of a plan."""
        sql = ""
        for at, select in enumerate(plan.selects):
            rows = self._rows(at, select)
            run_select(rows, self, Counter(), EqualCosts)
            rows.bind_checks()
            self.depends = True
            sql = rows.final()
            if select.table:
                self.scratch.fill(select.table, sql)
        if plan.outer is not None:
            sql = parser().sql(plan.outer)
        self.database.execute(f"EXPLAIN ANALYZE {sql}")
        shell = plan.bound.shell
        if shell.kind not in ("QUERY", "PIVOT"):
            self.database.bind(shell.around(sql))
        if shell.kind == "INSERT":
            check_insert(shell, sql, self.database)

    def _rows(self, at: int, select: SelectPlan) -> Rows:
        query: Node = select.context.around(select.base)
        is_kept = not any(table.table.startswith("_rq_table_") for table in query.find_all(Table))
        rows = Rows.of(select, self.database, self.scratch)
        if is_kept:
            self.kept[at] = rows
        return rows

    def ask(
        self, name: str, call: PlannedCall, rows: Rows, wanted: Int64s, where: Expression | None
    ) -> None:
        """Compute the fields of a call."""
        self.depends |= where is not None or bool(call.needs)
        rows.compute(call.fields, wanted)
        self.depends = True
        values = rows.of_call(call.index)
        values.asked[wanted] = True
        for row in wanted.tolist() if self.valid else ():
            values.values[row] = _value(call.task, row)

    def check(self, name: str, checks: tuple[Check, ...], rows: Rows, among: Int64s) -> None:
        """Nothing: there are no answers to check."""

    def cut(self, rows: Rows) -> None:
        """Drop the rows that a SELECT does not return."""
        rows.cut()


def _value(task: Task, row: int) -> Any:
    """A valid value of what a call answers; not the same in all rows, if it can be."""
    if task.output is not None and task.kind != "match":
        return _of_shape(task.output.shape, row)
    sampling = task.sampling
    texts = sampling.texts if isinstance(sampling, Compared) else sampling.labels
    return texts[row % len(texts)] if texts else str(row)


def _of_shape(shape: Shape, row: int) -> Any:
    if isinstance(shape, StructOf):
        return {part.name: _of_shape(part.shape, row) for part in shape.parts}
    if isinstance(shape, ListOf):
        return [_of_shape(shape.item, row)] * (1 if shape.size is None else shape.size)
    return _of_leaf(shape, row)


def _of_leaf(leaf: Leaf, row: int) -> str:
    if leaf.values:
        return str(leaf.values[row % len(leaf.values)])
    candidates = (str(row), *_VALUES)
    return next((one for one in candidates if leaf.read(one) is not None), "1")


_VALUES = ("1", "true", "2000-01-01", "12:00:00", "2000-01-01T12:00:00", "2000-01-01T12:00:00Z",
           "00000000-0000-0000-0000-000000000001", "Yes")  # fmt: skip
