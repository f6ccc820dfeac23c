"""Answers that a statement writes to the typed columns of a table."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from relquery.sql.answers.checks import Note, answers_in
from relquery.sql.host.database import Database
from relquery.sql.read.source import to_sql


def types_written(
    database: Database, tree: exp.Expr, select: exp.Select, names: Sequence[str]
) -> list[str]:
    """Types of the columns that an INSERT writes a SELECT to; `names` are the SELECT's columns.

    Empty if the rows of the SELECT are not written unchanged.
    """
    if not isinstance(tree, exp.Insert) or not _gives_rows_of(tree.expression, select):
        return []
    columns = columns_of(database, tree.this)
    if tree.args.get("by_name"):
        by_name = {name.lower(): (name, kind) for name, kind in columns}
        columns = [by_name[name.lower()] for name in names if name.lower() in by_name]
    return [kind for _, kind in columns] if len(columns) == len(names) else []


def read_rows(database: Database, table: str, notes: Sequence[Note | None]) -> exp.Select:
    """The rows of a scratch table with its columns cast as noted."""
    if not any(notes):
        return exp.select("*").from_(table)
    names = [name for name, _ in database.describe(f"FROM {table}")]
    items = [
        exp.alias_(note.read(exp.column(name, quoted=True)), name, quoted=True)
        if note
        else exp.column(name, quoted=True)
        for name, note in zip(names, notes, strict=True)
    ]
    return exp.select(*items).from_(table)


def answer_columns(database: Database, table: str, final: exp.Select) -> frozenset[str]:
    """Lower-case names of the columns of a scratch table that depend on answers."""
    names = [name.lower() for name, _ in database.describe(f"FROM {table}")]
    items = zip(names, final.expressions, strict=True)
    return frozenset(name for name, item in items if answers_in(item))


def _gives_rows_of(query: exp.Expr, select: exp.Select) -> bool:
    """Whether a query gives the rows of a SELECT unchanged, possibly with others."""
    if isinstance(query, exp.Subquery):
        return _gives_rows_of(query.this, select)
    if isinstance(query, exp.Union) and not any(
        query.args.get(clause) for clause in ("distinct", "order", "limit", "offset", "by_name")
    ):
        return _gives_rows_of(query.this, select) or _gives_rows_of(query.expression, select)
    return query is select


def columns_of(database: Database, target: exp.Expr) -> list[tuple[str, str]]:
    """(name, type) of the columns that a statement names; all of the table's if it names none."""
    table = target.this if isinstance(target, exp.Schema) else target
    columns = target.expressions if isinstance(target, exp.Schema) else [exp.Star()]
    query = exp.Select(expressions=[column.copy() for column in columns])
    query.set(
        "from_",
        exp.From(
            this=exp.Table(
                **{
                    key: table.args[key].copy()
                    for key in ("this", "db", "catalog")
                    if table.args.get(key)
                }
            )
        ),
    )
    return database.describe(to_sql(query))
