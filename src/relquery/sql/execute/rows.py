"""The rows of one SELECT while it runs: the rows still needed, and the answers so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from relquery.arrays import Int64s
from relquery.sql import names as ours
from relquery.sql.answers.checks import Check, answers_in
from relquery.sql.execute.answers import Failure, Values
from relquery.sql.execute.cells import Cells
from relquery.sql.execute.prompt import Form, as_text
from relquery.sql.host.database import Database, Scratch
from relquery.sql.plan.fields import Field
from relquery.sql.plan.planner import PlannedCall, SelectPlan
from relquery.sql.read.scopes import Context
from relquery.sql.read.source import to_sql


@dataclass(slots=True)
class Rows:
    """Base rows of a plan, materialised and numbered from 0.

    alive: the rows still needed. begun: the calls that already had a stage.
    """

    plan: SelectPlan
    context: Context
    database: Database
    scratch: Scratch
    base: str
    count: int
    alive: Int64s
    values: dict[int, Values] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, plan: SelectPlan, context: Context, database: Database, scratch: Scratch) -> Rows:
        """Run the base query."""
        # Numbered from 0 in the order in which DuckDB returns the rows.
        numbered = f"SELECT row_number() OVER () - 1 AS {ours.ROW}, *"
        base = scratch.table(context.sql(f"{numbered} FROM ({to_sql(plan.base)}) AS {ours.BASE}"))
        count = database.fetch(f"SELECT count(*) FROM {base}").column(0)[0].as_py()
        alive = np.arange(count, dtype=np.int64)
        return cls(plan, context, database, scratch, base, count, alive)

    def of_call(self, index: int) -> Values:
        """Where the answers to a call are kept."""
        if index not in self.values:
            self.values[index] = Values.none_yet(index, self.count)
        return self.values[index]

    def sql(self, select: str, rows: Int64s | None = None) -> str:
        """`select` over the table ours.ROWS: base rows `rows`, or all that are alive."""
        wanted = self.alive if rows is None else rows
        view = self.scratch.view(self._answers(wanted))
        join = f"SELECT * FROM {self.base} JOIN {view} USING ({ours.ROW}) ORDER BY {ours.ROW}"
        return self.context.sql(select, f"{ours.ROWS} AS ({join})")

    def final(self, rows: Int64s | None = None) -> str:
        """The final SELECT of the plan over base rows `rows` (all alive ones if None)."""
        return self.sql(to_sql(self.plan.final), rows)

    def matching(self, predicate: exp.Expr, rows: Int64s | None = None) -> Int64s:
        """The rows (all alive if None) for which a predicate over ours.ROWS is true."""
        where = f"WHERE {to_sql(predicate)} ORDER BY {ours.ROW}"
        found = self.database.fetch(self.sql(f"SELECT {ours.ROW} FROM {ours.ROWS} {where}", rows))
        ids: Int64s = found.column(0).to_numpy()
        return ids

    def narrow(self, predicate: exp.Expr) -> None:
        """Drop the rows for which a filter is not true. Its calls are already answered."""
        self.alive = self.matching(predicate)

    def determined(self, call: PlannedCall, rows: Int64s) -> Int64s:
        """The rows in which no field of a call depends on a lost answer."""
        for need in call.needs:
            lost = rows[self.of_call(need.call).lost[rows]]
            if len(lost):
                rows = np.setdiff1d(rows, self.matching(need.reads, lost))
        return rows

    def failures(self, call: int, stage: str) -> list[Failure]:
        """Failures of checks that can be decided now that a stage has asked `call`.

        Each is returned once.
        """
        found: list[Failure] = []
        for check in self.plan.checks:
            if call in check.needs and check.needs <= self.begun:
                found += self._failures_of(check, stage)
        return found

    def bind_checks(self) -> None:
        """Have DuckDB look for errors in the checks of the plan."""
        for check in self.plan.checks:
            self.database.describe(self.sql(_failed_rows(check), self.alive[:0]))

    def _failures_of(self, check: Check, stage: str) -> list[Failure]:
        table = self.database.fetch(self.sql(_failed_rows(check)))
        values = self.of_call(check.calls[-1])
        return [
            values.fail(row, check.trouble(value), stage)
            for row, value in zip(*map(pa.ChunkedArray.to_pylist, table.columns), strict=True)
            if not values.failed[row]
        ]

    def cells(self, fields: tuple[Field, ...], rows: Int64s) -> Cells:
        """The fields of some rows, ascending, as text to be read."""
        written = self._as_text(fields)
        items = ", ".join(f"{text} AS {ours.field(at)}" for at, (text, _) in enumerate(written))
        names, forms = tuple(field.name for field in fields), tuple(form for _, form in written)

        def read(wanted: Int64s) -> pa.Table:
            select = f"SELECT {ours.ROW}, {items} FROM {ours.ROWS}"
            table = self.database.fetch(self._unordered(select, fields, wanted))
            numbers = table.column(0).to_numpy()
            if not (numbers[1:] > numbers[:-1]).all():
                table = table.take(pa.array(np.argsort(numbers)))
            return table.remove_column(0)

        return Cells(names, forms, rows, read)

    def compute(self, fields: tuple[Field, ...], rows: Int64s) -> None:
        """Have DuckDB compute the fields of some rows. Raises QueryError if that fails."""
        items = ", ".join(text for text, _ in self._as_text(fields))
        if items:
            select = f"SELECT {items} FROM {ours.ROWS}"
            self.database.execute(f"EXPLAIN ANALYZE {self._unordered(select, fields, rows)}")

    def _as_text(self, fields: tuple[Field, ...]) -> list[tuple[str, Form]]:
        """SQL that writes each field as text, and the form of that text."""
        if not fields:
            return []
        items = ", ".join(field.sql for field in fields)
        types = self.database.describe(self.sql(f"SELECT {items} FROM {ours.ROWS}", self.alive[:0]))
        return [
            as_text(field.sql, sql_type) for field, (_, sql_type) in zip(fields, types, strict=True)
        ]

    def _unordered(self, select: str, fields: tuple[Field, ...], rows: Int64s) -> str:
        """`select`, which reads fields, over some rows in any order: sorting texts takes memory."""
        if any(answers_in(field.value) for field in fields):
            return self.sql(select, rows)
        source = f"SELECT * FROM {self.base}"
        if len(rows) < self.count:
            view = self.scratch.view(pa.table({ours.ROW: rows}))
            source += f" SEMI JOIN {view} USING ({ours.ROW})"
        return self.context.sql(select, f"{ours.ROWS} AS ({source})")

    def characters(self, fields: tuple[Field, ...]) -> float:
        """Mean number of characters in a row's fields, for choosing which filter to run first."""
        if not fields or not len(self.alive):
            return 0.0
        lengths = " + ".join(
            f"coalesce(length(CAST({field.sql} AS VARCHAR)), 0)" for field in fields
        )
        mean: Any = self.database.fetch(self.sql(f"SELECT avg({lengths}) FROM {ours.ROWS}"))
        return float(mean.column(0)[0].as_py())

    def _answers(self, rows: Int64s) -> pa.Table:
        columns: dict[str, pa.Array] = {ours.ROW: pa.array(rows)}
        for call in self.plan.calls:
            texts = self.of_call(call.index).texts[rows]
            columns[ours.answer(call.index)] = pa.array(texts, pa.large_string())
        return pa.table(columns)


def _failed_rows(check: Check) -> str:
    read = f"SELECT {ours.ROW}, {to_sql(check.value)} FROM {ours.ROWS}"
    return f"{read} WHERE {to_sql(check.failed)} ORDER BY {ours.ROW}"
