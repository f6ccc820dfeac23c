"""Where a column's value comes from: a lambda, a comprehension, a subquery or the outer FROM."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from relquery.errors import QueryError
from relquery.sql.host.database import Database
from relquery.sql.read.from_clause import read_sources
from relquery.sql.read.scopes import Context, context_of


def is_variable(node: exp.Expr) -> bool:
    """Whether a column, an identifier, or the part before a dot is a variable.

    Variables belong to a lambda or list comprehension; both their declaration and their uses count.
    If a table has a column of the same name, the variable takes precedence.
    """
    if _is_declared(node):
        return True
    name = _first_part(node).name.lower()
    inside, parent = node, node.parent
    while parent is not None:
        if name in _variables(parent, inside):
            return True
        inside, parent = parent, parent.parent
    return False


def _is_declared(node: exp.Expr) -> bool:
    parent = node.parent
    if isinstance(parent, exp.Lambda):
        return node.arg_key == "expressions"
    return isinstance(parent, exp.Comprehension) and node.arg_key in ("expression", "position")


def _first_part(node: exp.Expr) -> exp.Expr:
    """`a` of `a.b`."""
    if isinstance(node, exp.Identifier):
        return node
    part: exp.Expr = node.args.get("table") or node.this
    return part


def _variables(node: exp.Expr, inside: exp.Expr) -> Iterator[str]:
    """Lower-case names of the variables that a node defines for its part `inside`."""
    if isinstance(node, exp.Lambda) and inside.arg_key == "this":
        yield from (variable.name.lower() for variable in node.expressions)
    if isinstance(node, exp.Comprehension) and inside.arg_key in ("this", "condition"):
        parts = [part for part in (node.expression, node.args.get("position")) if part]
        yield from (name.name.lower() for part in parts for name in part.find_all(exp.Identifier))


def outer_columns(query: exp.Expr, database: Database, context: Context) -> list[exp.Column] | None:
    """The columns in a subquery that come from outside its own FROM clauses; None if unknown.

    context: the WITH entries that the subquery sees from outside.
    """
    try:
        return [
            column
            for column in query.find_all(exp.Column)
            if not is_variable(column) and not _is_given(column, query, database, context)
        ]
    except QueryError:  # a FROM clause that depends on a row of the outer query
        return None


def _is_given(column: exp.Column, query: exp.Expr, database: Database, context: Context) -> bool:
    """Whether a column comes from a SELECT inside `query`."""
    if isinstance(column.this, exp.Star) and not column.table:
        return True
    table, name = column.table.lower(), column.name.lower()
    node: exp.Expr | None = column
    while node is not None:
        if isinstance(node, exp.Select):
            sources = read_sources(database, node, _beside(context, context_of(node)))
            tables = {alias.lower(): columns for alias, columns in sources.columns.items()}
            named = {item.alias.lower() for item in node.expressions if item.alias}
            if (table in tables or sources.has(table)) if table else sources.has(name):
                return True
            if not table and name in named:
                return True
        node = None if node is query else node.parent
    return False


def _beside(outer: Context, inner: Context) -> Context:
    entries = [entry for entry in outer.entries if entry not in inner.entries]
    return Context((*entries, *inner.entries), outer.recursive or inner.recursive)
