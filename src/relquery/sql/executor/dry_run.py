"""The dry run of a plan, on stand-ins for answers, before its first call.

Nobody pays for a statement that is bound to fail. With NULL for every answer DuckDB runs all that
answers do not decide. If that fails, it may be due to the NULLs: so the statement is wrong only if
it also fails with another stand-in, a valid value of each type. An INSERT is wrong, too, if its
rows break a constraint of the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from relquery.arrays import Int64s
from relquery.errors import QueryError
from relquery.prompt import Compared
from relquery.sql import names as ours
from relquery.sql.binder.call import Task
from relquery.sql.executor.rows import Rows
from relquery.sql.executor.stages import StageWalker
from relquery.sql.host.database import Constraint, Database, Scratch
from relquery.sql.host.errors import is_aborted
from relquery.sql.names import quoted
from relquery.sql.parser.parse import parser
from relquery.sql.parser.shell import Shell
from relquery.sql.parser.tree import Expression, Node, Table
from relquery.sql.planner.plan import PlannedCall
from relquery.sql.planner.statement import StatementPlan
from relquery.sql.types.shape import ListOf, Shape, StructOf


def dry_run(plan: StatementPlan, database: Database, scratch: Scratch) -> dict[int, Rows]:
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
    return {index: rows.again() for index, rows in first.kept.items()}


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

    def run(self, plan: StatementPlan) -> None:
        """Go through all of a plan."""
        sql = ""
        for index, select in enumerate(plan.selects):
            query: Node = select.context.around(select.base)
            tables = [table.table for table in query.find_all(Table)]
            rows = Rows.of(select, self.database, self.scratch)
            if not any(table.startswith("_rq_table_") for table in tables):
                self.kept[index] = rows
            StageWalker(rows, self.ask, Counter(), costs=None).run()
            rows.bind_checks()
            self.depends = True
            sql = rows.final()
            if select.table:
                self.scratch.fill(select.table, sql)
        if plan.outer is not None:
            sql = parser().sql(plan.outer)
        self.database.execute(f"EXPLAIN ANALYZE {sql}")
        shell = plan.bound.shell
        if shell.kind != "QUERY":
            self.database.bind(shell.around(sql))
        if shell.kind == "INSERT":
            _check_insert(shell, sql, self.database)

    def ask(
        self, name: str, call: PlannedCall, rows: Rows, wanted: Int64s, where: Expression | None
    ) -> None:
        """Compute the fields of a call."""
        self.depends |= where is not None or bool(call.needs)
        rows.compute(call.fields, wanted)
        self.depends = True
        columns = rows.of_call(call.index)
        columns.asked[wanted] = True
        for row in wanted.tolist() if self.valid else ():
            columns.values[row] = _value(call.task, row)


def _value(task: Task, row: int) -> Any:
    """A valid value of what a call answers; not the same in all rows, if it can be."""
    if task.output is not None and not task.is_text:
        return _of_shape(task.output.shape, row)
    sampling = task.sampling
    texts = sampling.texts if isinstance(sampling, Compared) else sampling.labels
    return texts[row % len(texts)] if texts else str(row)


def _of_shape(shape: Shape, row: int) -> Any:
    if isinstance(shape, StructOf):
        return {part.name: _of_shape(part.shape, row) for part in shape.parts}
    if isinstance(shape, ListOf):
        return [_of_shape(shape.item, row)] * (1 if shape.size is None else shape.size)
    if shape.values:
        return str(shape.values[row % len(shape.values)])
    return next((value for value in (str(row), *_VALUES) if shape.read(value) is not None), "1")


_VALUES = ("1", "true", "2000-01-01", "12:00:00", "2000-01-01T12:00:00", "2000-01-01T12:00:00Z",
           "00000000-0000-0000-0000-000000000001", "Yes")  # fmt: skip


def _check_insert(shell: Shell, query: str, database: Database) -> None:
    """Raises QueryError for rows that the table cannot accept. query: gives the rows."""
    columns = database.columns(f"SELECT * FROM {shell.target}")
    given = [name for name, _ in database.columns(query)]
    names = given if shell.by_name else list(shell.columns) or [name for name, _ in columns]
    types = {name.lower(): kind for name, kind in columns}
    known = {name.lower() for name in names}
    if len(names) != len(given) or not known <= types.keys():
        return
    listing = ", ".join(f"c{index}" for index in range(len(given)))
    items = ", ".join(
        f"CAST(c{index} AS {types[name.lower()]}) AS {quoted(name)}"
        for index, name in enumerate(names)
    )
    source = f"SELECT {items} FROM ({query}) AS {ours.ROWS}({listing})"
    database.execute(f"EXPLAIN ANALYZE {source}")
    replaces = "CONFLICT" in shell.tail.upper() or " OR " in f" {shell.head.upper()} "
    for constraint in database.constraints(shell.path):
        if not known.issuperset(map(str.lower, constraint.columns)):
            continue
        for breach in _breaches(constraint, source, "" if replaces else shell.target):
            rows = database.fetch(f"{breach} LIMIT 1")
            if rows.num_rows:
                row = ", ".join(
                    f"{name} = {rows[name][0].as_py()!r}" for name in constraint.columns
                )
                what = (
                    constraint.text
                    if constraint.kind != "NOT NULL"
                    else f"NOT NULL of {constraint.columns[0]}"
                )
                raise QueryError(f"{shell.target} rejects the rows: {row} violates {what}.")


def _breaches(constraint: Constraint, source: str, table: str) -> Iterator[str]:
    """Queries for the rows of `source` that violate a constraint. table: "" if equal keys replace
    its rows."""
    names = ", ".join(map(quoted, constraint.columns))
    rows = f"SELECT {names} FROM ({source})"
    if constraint.kind == "NOT NULL":
        yield f"{rows} WHERE {names} IS NULL"
    elif constraint.kind == "CHECK":
        yield f"{rows} WHERE NOT ({constraint.condition})"
    elif constraint.is_key and table:
        whole = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in constraint.columns)
        yield f"{rows} WHERE {whole} GROUP BY ALL HAVING count(*) > 1"
        yield f"{rows} SEMI JOIN (SELECT {names} FROM {table}) USING ({names})"
