"""Rehearses a statement on stand-in answers before its first call.

If DuckDB rejects a statement that is to be run, or a value that no answer can change, it does so
here. So nobody pays for a query that is bound to fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlglot import exp
from sqlglot.helper import ensure_list

from relquery.arrays import Int64s
from relquery.errors import QueryError
from relquery.prompt import Sampling
from relquery.sql.answers.checks import Check
from relquery.sql.explain.bounds import Known, known_rows, reading
from relquery.sql.explain.certain import certain_queries
from relquery.sql.explain.rows import ForeseenRows
from relquery.sql.host.database import Database, Scratch
from relquery.sql.plan.planner import PlannedCall, SelectPlan
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.scopes import Context
from relquery.sql.read.source import to_sql

_NONE = slice(0, 0)
_IsOpen = Callable[[exp.Expr], bool]
_BEFORE_WINDOWS = ("group", "having", "windows")
_AFTER_WINDOWS = ("qualify", "distinct", "order", "limit", "offset")


@dataclass(slots=True)
class Rehearsal:
    """Stages that make no calls; see walk.stages. NULL stands in for all answers.

    stand_ins: what is known about the tables that contain the rows of subqueries. samplings: of the
    calls.
    """

    database: Database
    scratch: Scratch
    aggregates: Aggregates
    stand_ins: dict[str, Known] = field(default_factory=dict)
    samplings: list[Sampling] = field(default_factory=list)

    def rows(self, plan: SelectPlan, context: Context) -> ForeseenRows:
        """Base rows, as far as they are known."""
        return ForeseenRows.foresee(plan, context, self.database, self.scratch, self.stand_ins)

    def ask(
        self,
        name: str,
        call: PlannedCall,
        rows: ForeseenRows,
        wanted: Int64s,
        where: exp.Expr | None,
    ) -> None:
        """Compute the fields of a call; for zero rows if answers may decide the rows or fields.

        Raises QueryError if that fails.
        """
        del name
        if call.sampling not in self.samplings:
            self.samplings.append(call.sampling)
        rows.of_call(call.index).asked[wanted] = True
        rows.compute(call.fields, wanted if _is_certain(call, rows, where) else wanted[_NONE])

    def check(
        self, name: str, checks: tuple[Check, ...], rows: ForeseenRows, among: Int64s
    ) -> None:
        """Nothing: there are no answers to check."""

    def cut(self, rows: ForeseenRows) -> None:
        """Drop rows if this is known. Raises QueryError if what decides it cannot be computed."""
        if rows.plan.cut is not None:
            self._compute(rows.plan.cut.select, rows)
        rows.cut()

    def table(self, rows: ForeseenRows) -> str:
        """A stand-in; see sql.explain.bounds. Raises QueryError if rows cannot be computed."""
        self.compute(rows)
        sql = rows.final()
        empty = f"SELECT * FROM ({sql}) WHERE false"
        known = known_rows(rows.plan.final, rows.at_hand, self.aggregates)
        try:
            name = self.scratch.table(sql if known.held else empty)
        except QueryError:  # due to rows that a filter would drop, or to NULL for an answer
            known = replace(known, exact=False, held=False)
            name = self.scratch.table(empty)
        self.stand_ins[name] = known
        return name

    def final(self, rows: ForeseenRows) -> str:
        """The final SELECT over zero rows. Raises QueryError if rows cannot be computed."""
        self.compute(rows)
        return rows.final(rows.alive[_NONE])

    def outer(self, statement: exp.Expr | None) -> None:
        """Compute everything in a statement outside its SELECTs with calls that answers cannot
        change. Raises QueryError if that fails.
        """
        if statement is None:
            return
        for query in certain_queries(statement, self.stand_ins, self.aggregates):
            try:
                self.database.describe(query)
            except QueryError:  # NULL has a different type from the value it replaces
                continue
            self.database.execute(f"EXPLAIN ANALYZE {query}")

    def compute(self, rows: ForeseenRows) -> None:
        """Compute the parts of a SELECT that do not depend on answers.

        Raises QueryError if that fails, or if DuckDB cannot run the whole SELECT.
        """
        self.database.describe(rows.final(rows.alive[_NONE]))
        rows.bind_checks()
        self._compute(rows.plan.final, rows)

    def _compute(self, select: exp.Select, rows: ForeseenRows) -> None:
        fixed = self._without_answers(select.copy(), rows)
        if fixed is not None:
            self.database.execute(f"EXPLAIN ANALYZE {rows.sql(fixed)}")

    def _without_answers(self, select: exp.Select, rows: ForeseenRows) -> str | None:
        """A SELECT over the rows with NULL for the items that depend on answers.

        If answers decide which rows remain after the windows, only the windows. None if answers
        decide more.
        """
        if not (rows.known.exact and rows.known.held) or self.aggregates.is_volatile(select):
            return None
        reads = reading(self.stand_ins, rows.context)

        def is_open(node: exp.Expr) -> bool:
            return rows.known.is_open(node, reads)

        if any(map(is_open, _clauses(select, *_BEFORE_WINDOWS))):
            return None
        if any(map(is_open, _clauses(select, *_AFTER_WINDOWS))):
            return self._windows(select, rows, is_open)
        for item in select.expressions:
            if is_open(item):
                item.set("this", exp.null())
        return to_sql(select)

    def _windows(self, select: exp.Select, rows: ForeseenRows, is_open: _IsOpen) -> str | None:
        """The windows of a SELECT; DuckDB computes them before an answer can drop a row.

        None if there are none, or if they cannot run on their own.
        """
        windows = [
            window.copy()
            for window in select.find_all(exp.Window)
            if window.find_ancestor(exp.Select) is select
            and window.arg_key != "windows"  # where a window is only named
            and not is_open(window)
        ]
        if not windows:
            return None
        qualify = select.args.get("qualify")
        kept = [part for part in _conjuncts(qualify) if not is_open(part)]
        select.set("expressions", windows)
        select.set("qualify", exp.Qualify(this=exp.and_(*kept)) if kept else None)
        for key in ("distinct", "order"):
            select.set(key, None)
        for clause in _clauses(select, "limit", "offset"):
            if is_open(clause):
                clause.pop()
        try:
            self.database.describe(rows.sql(to_sql(select)))
        except QueryError:  # a window refers to an alias of the select list
            return None
        return to_sql(select)


def _clauses(select: exp.Select, *keys: str) -> list[exp.Expr]:
    """The given clauses that a SELECT has; named windows may be several."""
    found = (select.args.get(key) for key in keys)
    return [clause for each in found if each for clause in ensure_list(each)]


def _conjuncts(clause: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that must all hold for a row to pass."""
    if clause is None:
        return []
    condition = clause.this.unnest()
    return list(condition.flatten()) if isinstance(condition, exp.And) else [condition]


def _is_certain(call: PlannedCall, rows: ForeseenRows, where: exp.Expr | None) -> bool:
    """Whether the rows and inputs of a call are known for certain. where: holds in these rows."""
    return (
        rows.known.exact
        and rows.known.held
        and not (where and rows.is_open(where))
        and not any(rows.is_open(part.value) for part in call.fields)
    )
